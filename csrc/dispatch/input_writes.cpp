#include "dispatch/input_writes.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace thunder::dispatch {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

InputWrites::InputWrites(const tracer::Recorder& recorder) : written_(recorder.written_inputs()) {
  if (written_.empty()) return;
  for (const auto& [input, value] : recorder.inputs_with_new_history()) new_history_.push_back(input);
  const std::vector<std::int32_t> memories = recorder.shared_memory_of_inputs();
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const at::Tensor& real = recorder.real_inputs()[i];
    places_.push_back(memories[i] < 0 ? Place()
                                      : Place{memories[i], real.storage_offset(), storage_of(real)->nbytes()});
  }
}

bool InputWrites::shares_as_recorded(const std::vector<at::Tensor>& inputs, std::size_t written) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool recorded = places_[written].memory >= 0 && places_[i].memory == places_[written].memory;
    if (i != written && (storage_of(inputs[i]) == storage_of(inputs[written])) != recorded) return false;
  }
  return true;
}

bool InputWrites::match(const std::vector<at::Tensor>& inputs) const {
  for (const std::size_t written : written_) {
    if (!shares_as_recorded(inputs, written)) return false;
    const at::Tensor& input = inputs[written];
    const Place here{places_[written].memory, input.storage_offset(), storage_of(input)->nbytes()};
    if (here.memory >= 0 && here != places_[written]) return false;
  }
  // Writing to a leaf that requires grad is an error, which a new trace raises.
  return std::ranges::none_of(new_history_,
                              [&](std::size_t i) { return inputs[i].requires_grad() && inputs[i].is_leaf(); });
}

std::vector<at::Tensor> InputWrites::written(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> tensors;
  for (const std::size_t i : written_) tensors.push_back(inputs[i]);
  return tensors;
}

std::vector<at::Tensor> InputWrites::with_new_history(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> tensors;
  for (const std::size_t i : new_history_) tensors.push_back(inputs[i]);
  return tensors;
}

std::optional<std::uint64_t> sum_of_versions(const std::vector<at::Tensor>& tensors) {
  std::uint64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_inference()) return std::nullopt;
    sum += tensor._version();
  }
  return sum;
}

void set_history(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& computed) {
  const std::size_t first = computed.size() - tensors.size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    torch::autograd::impl::rebase_history(tensors[i], torch::autograd::impl::gradient_edge(computed[first + i]));
  }
  computed.resize(first);
}

}  // namespace thunder::dispatch
