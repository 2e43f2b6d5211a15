#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "executors/cuda/engine.h"
#include "runtime/launch_queue.h"

namespace thunder::executors::cuda {

/// The launches of a program that wait for one another, in groups that are the same ones in most runs: an engine may
/// keep for each group what makes its next launch cheaper.
///
/// Memory that the kernels read and write stays until they are launched: given back, it could be returned to the
/// driver. So that little stays, large kernels and those with large results are launched at once: the GPU takes longer
/// for them than their launch does.
class DeviceQueue final : public runtime::LaunchQueue {
 public:
  explicit DeviceQueue(Engine& engine) : engine_(engine) {}

  /// The one that this thread's kernels wait in; null: they are launched at once.
  [[nodiscard]] static DeviceQueue* of(const Engine& engine);

  /// `launch` stays until `flush`, as what is held does; its grid is `grid`.
  void add(const Module& module, const Launch& launch, std::int64_t grid, std::span<const std::byte> argument,
           at::Device device);
  // Until the kernels are launched:
  void hold_input(at::Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  void hold_result(at::Tensor tensor);
  void hold(c10::DataPtr memory) { memory_.push_back(std::move(memory)); }
  void hold(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }

  void begin() override { group_ = 0; }
  void flush() override;

 private:
  [[nodiscard]] std::size_t most_in_group() const;
  void forget();

  Engine& engine_;
  std::vector<QueuedLaunch> launches_;
  std::vector<std::byte> arguments_;
  at::Device device_ = at::kCPU;  ///< where all that wait run
  std::vector<at::Tensor> tensors_;
  std::vector<c10::DataPtr> memory_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::size_t result_bytes_ = 0;
  std::size_t group_ = 0;                               ///< the next one of the run
  std::vector<std::unique_ptr<LaunchGroup>> recorded_;  ///< by group
};

}  // namespace thunder::executors::cuda
