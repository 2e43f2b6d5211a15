#include "executors/cuda/device_queue.h"

#include <algorithm>
#include <utility>

namespace thunder::executors::cuda {

DeviceQueue* DeviceQueue::of(const Engine& engine) {
  auto* const queue = dynamic_cast<DeviceQueue*>(runtime::LaunchQueue::current());
  return queue != nullptr && &queue->engine_ == &engine ? queue : nullptr;
}

/// The first groups are small: a GPU has nothing to do until the first one is launched.
std::size_t DeviceQueue::most_in_group() const {
  constexpr std::size_t kFirst = 8;
  constexpr std::size_t kMostDoublings = 2;
  return kFirst << std::min(group_, kMostDoublings);
}

void DeviceQueue::add(const Module& module, const Launch& launch, std::int64_t grid,
                      std::span<const std::byte> argument, at::Device device) {
  constexpr std::int64_t kManyThreads = INT64_C(1) << 24U;
  const bool is_large = grid * launch.threads >= kManyThreads;
  if (is_large || launches_.size() >= most_in_group() || (!launches_.empty() && device != device_)) flush();
  device_ = device;
  launches_.push_back({&module, &launch, grid, arguments_.size(), argument.size()});
  arguments_.insert(arguments_.end(), argument.begin(), argument.end());
  if (is_large) flush();
}

void DeviceQueue::hold_result(at::Tensor tensor) {
  constexpr std::size_t kMostBytes = std::size_t{32} << 20U;
  result_bytes_ += tensor.nbytes();
  tensors_.push_back(std::move(tensor));
  if (result_bytes_ > kMostBytes) flush();
}

void DeviceQueue::forget() {
  launches_.clear();
  arguments_.clear();
  tensors_.clear();
  memory_.clear();
  owners_.clear();
  result_bytes_ = 0;
}

void DeviceQueue::flush() {
  struct Forget {
    DeviceQueue& queue;
    ~Forget() { queue.forget(); }
  } const forget{*this};
  if (launches_.empty()) return;
  if (recorded_.size() == group_) recorded_.emplace_back();
  engine_.launch_group(launches_, arguments_, device_, recorded_[group_++]);
}

}  // namespace thunder::executors::cuda
