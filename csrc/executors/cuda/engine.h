#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "executors/cuda/compilation.h"
#include "executors/cuda_kernels/kernel_source.h"
#include "executors/fused/fusion_memo.h"

namespace thunder::executors::cuda {

class Fusion;

/// A launch that waits for others: `Engine::launch_group`.
struct QueuedLaunch {
  const Module* module = nullptr;
  const Launch* launch = nullptr;
  std::int64_t grid = 1;
  std::size_t argument = 0;  ///< where its argument begins
  std::size_t size = 0;      ///< bytes of the argument
};

/// Kept by an engine of a group of launches, for the next time that they come.
class LaunchGroup {
 public:
  virtual ~LaunchGroup() = default;
  LaunchGroup() = default;
  LaunchGroup(const LaunchGroup&) = delete;
  LaunchGroup& operator=(const LaunchGroup&) = delete;
};

/// Compiles kernels and launches them. Thread-safe; lives as long as the process.
class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The type of the devices whose memory kernels read.
  [[nodiscard]] virtual at::DeviceType device_type() const = 0;
  [[nodiscard]] virtual int multiprocessors(at::Device device) = 0;
  /// Gives memory of the current device, for its current stream.
  [[nodiscard]] virtual c10::Allocator* allocator() = 0;
  /// Launches a function of the module with its one argument, on the current stream of the device, which is the current
  /// one. False: a thread has stopped the kernel, which devices tell later.
  virtual bool launch(const Module& module, const Launch& launch, std::span<const std::byte> argument,
                      at::Device device) = 0;
  /// Whether launches may wait for others (`DeviceQueue`): none of them tells that a thread has stopped it.
  [[nodiscard]] virtual bool queues_launches() const { return false; }
  /// Launches functions one after the other, as `launch` does. `kept` is what the last call for this group left there.
  virtual void launch_group(std::span<const QueuedLaunch> launches, std::span<const std::byte> arguments,
                            at::Device device, std::unique_ptr<LaunchGroup>& kept);

  /// The compilation of a text, which a worker thread takes up if it is new. Equal texts are compiled once.
  [[nodiscard]] std::shared_ptr<Compilation> request(const KernelSource& source, at::Device device);
  /// The fusions whose kernels it has.
  [[nodiscard]] FusionMemo<Fusion>& fusions() { return fusions_; }

 protected:
  /// To be called from any thread. Throws for a text that cannot be compiled.
  [[nodiscard]] virtual std::shared_ptr<const Module> compile(const KernelSource& source, at::Device device) = 0;

 private:
  FusionMemo<Fusion> fusions_;
  std::mutex mutex_;
  /// By their text.
  std::map<std::pair<at::DeviceIndex, std::string_view>, std::shared_ptr<Compilation>> compilations_;
};

}  // namespace thunder::executors::cuda
