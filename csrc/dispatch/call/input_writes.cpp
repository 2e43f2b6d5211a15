#include "dispatch/call/input_writes.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autograd/node_pointer.h"
#include "base/error.h"
#include "runtime/versions.h"
#include "tracer/write_checks.h"

namespace thunder::dispatch {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

bool overlap(const c10::StorageImpl& left, const c10::StorageImpl& right) {
  const auto* first = static_cast<const char*>(left.data());
  const auto* second = static_cast<const char*>(right.data());
  return first < second + right.nbytes() && second < first + left.nbytes();
}

/// The node that `view.copy_(made)` adds to the graph. Autograd puts the base of the view in the place of its first
/// input.
torch::autograd::Edge edge_of_copy(const torch::autograd::Edge& view, const at::Tensor& made) {
  auto node = autograd::make_node<torch::autograd::CopyBackwards>();
  node->set_next_edges({view, torch::autograd::impl::gradient_edge(made)});
  node->src_options = made.options();
  node->add_input_metadata(made);
  return {std::move(node), 0};
}

}  // namespace

InputWrites::InputWrites(const tracer::Recorder& recorder, bool reads_buffers)
    : written_(recorder.memory.written_inputs()), reads_buffers_(reads_buffers) {
  if (written_.empty()) return;
  const auto is_unseen = [&](std::size_t written) { return shares_unseen(recorder.tensors.real_inputs(), written); };
  if (std::ranges::any_of(written_, is_unseen)) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: writes to a tensor over memory that an array of NumPy, or the like, may share, which "
                    "the function reads too; write to it outside");
  }
  for (const auto& [input, value] : recorder.memory.inputs_with_new_history()) new_history_.push_back(input);
  const std::vector<std::int32_t> memories = recorder.memory.groups();
  for (const std::size_t i : written_) {
    const at::Tensor& real = recorder.tensors.real_inputs()[i];
    if (real.is_inference() && !c10::InferenceMode::is_enabled()) {
      throw UserError(ErrorKind::kNotImplemented,
                      "thunder.jit: not supported: an inference tensor from outside is written to by a function that "
                      "enters inference mode itself; call it in inference mode");
    }
    is_closed_.push_back(tracer::is_closed_outside(real));
  }
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const at::Tensor& real = recorder.tensors.real_inputs()[i];
    places_.push_back(memories[i] < 0 ? Place()
                                      : Place{memories[i], real.storage_offset(), storage_of(real)->nbytes()});
  }
  std::unordered_set<std::int32_t> shared;
  for (const std::size_t i : written_) {
    if (memories[i] >= 0) shared.insert(memories[i]);
  }
  const auto alone =
      static_cast<std::size_t>(std::ranges::count_if(written_, [&](std::size_t i) { return memories[i] < 0; }));
  const auto is_there = [&](std::int32_t memory) { return shared.contains(memory); };
  written_memories_ = alone + shared.size();
  inputs_there_ = alone + static_cast<std::size_t>(std::ranges::count_if(memories, is_there));
}

/// Whether those that lie in the memory of a written input are the ones that did. An optimizer's step writes to
/// thousands.
bool InputWrites::share_as_recorded(const std::vector<at::Tensor>& inputs) const {
  ska::flat_hash_map<const c10::StorageImpl*, std::size_t> first_written;  // in each memory
  first_written.reserve(written_.size());
  for (const std::size_t i : written_) first_written.emplace(storage_of(inputs[i]), i);
  if (first_written.size() != written_memories_) return false;
  std::size_t found = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto here = first_written.find(storage_of(inputs[i]));
    if (here == first_written.end()) continue;
    ++found;
    const std::size_t written = here->second;
    if (i != written && (places_[i].memory < 0 || places_[i].memory != places_[written].memory)) return false;
  }
  return found == inputs_there_;
}

/// Whether the function may read what it writes to `written` by way of another object over that memory.
bool InputWrites::shares_unseen(const std::vector<at::Tensor>& inputs, std::size_t written) const {
  const c10::StorageImpl* memory = storage_of(inputs[written]);
  if (!inputs[written].is_cpu() || memory->resizable()) return false;
  return reads_buffers_ || std::ranges::any_of(inputs, [&](const at::Tensor& input) {
           const c10::StorageImpl* other = storage_of(input);
           return input.is_cpu() && other != memory && overlap(*other, *memory);
         });
}

bool InputWrites::match(const std::vector<at::Tensor>& inputs) const {
  if (written_.empty()) return true;
  if (!share_as_recorded(inputs)) return false;
  for (std::size_t i = 0; i < written_.size(); ++i) {
    const std::size_t written = written_[i];
    if (shares_unseen(inputs, written)) return false;
    if (tracer::is_closed_outside(inputs[written]) != is_closed_[i]) return false;
    const at::Tensor& input = inputs[written];
    const Place here{places_[written].memory, input.storage_offset(), storage_of(input)->nbytes()};
    if (here.memory >= 0 && here != places_[written]) return false;
  }
  return true;
}

std::vector<at::Tensor> InputWrites::written(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> tensors;
  for (const std::size_t i : written_) tensors.push_back(inputs[i]);
  return tensors;
}

std::vector<NewHistory> InputWrites::with_new_history(const std::vector<at::Tensor>& inputs) const {
  std::vector<NewHistory> found;
  for (const std::size_t i : new_history_) {
    // A view that is asked for its history after the write would take that of its base from before it.
    const bool is_view = inputs[i].is_view();
    found.push_back({inputs[i], is_view ? torch::autograd::impl::gradient_edge(inputs[i]) : torch::autograd::Edge()});
  }
  return found;
}

std::optional<std::uint64_t> sum_of_versions(const std::vector<at::Tensor>& tensors) {
  std::uint64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!runtime::counts_writes(tensor)) return std::nullopt;
    sum += tensor._version();
  }
  return sum;
}

void set_history(const std::vector<NewHistory>& inputs, std::vector<at::Tensor>& computed) {
  const std::size_t first = computed.size() - inputs.size();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& [input, before] = inputs[i];
    const at::Tensor& made = computed[first + i];
    torch::autograd::impl::rebase_history(
        input, input.is_view() ? edge_of_copy(before, made) : torch::autograd::impl::gradient_edge(made));
  }
  computed.resize(first);
}

}  // namespace thunder::dispatch
