#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "executors/cuda/driver.h"
#include "executors/cuda/engine.h"

namespace thunder::executors::cuda {

/// A group of launches as a graph of the driver, one launch of which takes the processor no longer than two of kernels
/// do (3 us and 0.5 for each kernel that has changed, on an H200's host, beside 4 for each kernel). It is recorded when
/// as many functions come for the second time: functions and arguments are those of each launch.
class LaunchGraph final : public LaunchGroup {
 public:
  struct Function {
    Driver::Handle handle = nullptr;
    unsigned grid = 1;
    unsigned threads = 1;
    std::span<const std::byte> argument;
  };
  /// Launches one function on a stream, so that it is recorded.
  using LaunchOne = std::function<Driver::Result(const Function& function, Driver::Handle stream)>;

  LaunchGraph(const Driver& driver, at::Device device) : driver_(driver), device_(device) {}
  ~LaunchGraph() override { forget(); }

  /// Where its functions are: those of another one are of another graph.
  [[nodiscard]] at::Device device() const { return device_; }

  /// False: nothing has been done.
  [[nodiscard]] bool launch(std::span<const Function> functions, Driver::Handle stream, const LaunchOne& launch_one);

 private:
  struct Node {
    Driver::Handle handle = nullptr;
    Driver::Handle function = nullptr;
    unsigned grid = 1;
    unsigned threads = 1;
    std::vector<std::byte> argument;
  };

  void forget();
  [[nodiscard]] bool record(std::span<const Function> functions, const LaunchOne& launch_one);
  /// Whether the nodes of the graph are the functions, in their order.
  [[nodiscard]] bool find_nodes(std::span<const Function> functions);
  void update(Node& node, const Function& function);

  const Driver& driver_;
  at::Device device_;
  std::vector<Node> nodes_;
  Driver::Handle graph_ = nullptr;
  Driver::Handle executable_ = nullptr;
  std::size_t recordings_ = 0;
  std::size_t launches_ = 0;
};

}  // namespace thunder::executors::cuda
