// The memory behind the inputs: who shares it, and what becomes of writes to it.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/symbols.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::tracer {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

TraceState& state_of(const at::Tensor& trace_tensor) { return *trace_impl(trace_tensor)->state(); }

[[noreturn]] void refuse_shared(const std::string& why) {
  throw UserError(ErrorKind::kNotImplemented,
                  "the program writes in place to an input that shares memory with another input" + why +
                      "; pass a clone of one of them");
}

const c10::OperatorHandle& as_strided_handle() {
  static const auto kHandle = c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided", "");
  return kHandle;
}

}  // namespace

void Recorder::add_memory(const at::Tensor& input) {
  memories_.push_back({input, state_of(input).value});
  memory_of_input_.push_back(memories_.size() - 1);
}

/// All of the storage that `real` lies in, as one flat tensor.
std::size_t Recorder::add_storage(const at::Tensor& real, ir::ValueId input) {
  ir::TensorType type = bridge::type_of(real);
  const auto count = static_cast<std::int64_t>(real.storage().nbytes() / real.element_size());
  type.sizes = {ir::Dim(count)};
  type.strides = {ir::Dim(1)};
  type.storage_offset = 0;
  const at::Tensor base = add_tensor(ir::make_type(std::move(type)), "storage", /*is_input=*/false);
  ir::BoundSymbol symbol;
  symbol.op = operator_for(as_strided_handle());
  symbol.arguments = {ir::Argument(input), ir::ArgumentList{count}, ir::ArgumentList{1}, ir::Argument(0)};
  symbol.results.emplace_back(state_of(base).value);
  symbol.comment = "inputs share this memory";
  add(std::move(symbol));
  memories_.push_back({base, state_of(base).value, storage_of(real)});
  return memories_.size() - 1;
}

void Recorder::lay_into_storage(const at::Tensor& real, const at::Tensor& input) {
  const c10::StorageImpl* storage = storage_of(real);
  if (std::ranges::find(shared_storages, storage) == shared_storages.end()) {
    const bool is_written = std::ranges::any_of(inputs_, [&](const at::Tensor& other) {
      const auto position = static_cast<std::size_t>(&other - inputs_.data());
      return !other.is_same(input) && storage_of(real_inputs_[position]) == storage &&
             root_of(state_of(other)).writes != 0;
    });
    if (is_written) found_shared(storage);
    return;
  }
  if (real.requires_grad()) refuse_shared(", and requires grad");
  if (real.is_conj() || real.is_neg()) refuse_shared(" as its conjugate or negative");
  auto memory = std::ranges::find(memories_, storage, &InputMemory::storage) - memories_.begin();
  if (memory == std::ssize(memories_)) {
    memory = static_cast<std::ptrdiff_t>(add_storage(real, state_of(input).value));
  }
  const at::Tensor base = memories_[static_cast<std::size_t>(memory)].root;
  if (base.scalar_type() != real.scalar_type()) refuse_shared(" of another dtype");
  memory_of_input_.back() = static_cast<std::size_t>(memory);
  trace_impl(input)->set_storage_keep_dtype(base.storage());
  state_of(input).view = ViewOf{.parent = base,
                                .op = as_strided_handle(),
                                .arguments = {base, real.sizes().vec(), real.strides().vec(), real.storage_offset()}};
}

void Recorder::found_shared(const c10::StorageImpl* storage) {
  shared_storages.push_back(storage);
  refuse_shared("");
}

bool Recorder::is_shared_storage(const TraceState& root) const {
  return std::ranges::any_of(memories_, [&](const InputMemory& memory) {
    return memory.storage != nullptr && &state_of(memory.root) == &root;
  });
}

void Recorder::require_separate_memory(const TraceState& root) {
  const auto has_root = [&](const at::Tensor& input) { return &root_of(state_of(input)) == &root; };
  const auto written = std::ranges::find_if(inputs_, has_root) - inputs_.begin();
  if (written == std::ssize(inputs_)) return;
  const c10::StorageImpl* storage = storage_of(real_inputs_[static_cast<std::size_t>(written)]);
  if (storage == nullptr) return;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (storage_of(real_inputs_[i]) == storage && !has_root(inputs_[i])) found_shared(storage);
  }
}

bool is_closed_outside(const at::Tensor& tensor) {
  if (!tensor.is_view()) return false;
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  const at::Tensor base(tensor._base());
  return meta->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT ||
         (base.requires_grad() && base.is_leaf());
}

void Recorder::require_writable(const at::Tensor& target, const at::Tensor& source) const {
  if (!c10::GradMode::is_enabled()) return;
  const bool is_differentiable =
      target.requires_grad() || source.requires_grad() || requires_grad_by_memory(state_of(target));
  if (is_differentiable && is_closed_to_writes(state_of(target))) {
    throw UserError(ErrorKind::kNotImplemented,
                    "a view that was made under torch.no_grad(), or by an operation with several results, is written "
                    "to with gradients on; write to the tensor that it shows");
  }
  const at::Tensor shown = real_behind(root_tensor_of(target));
  if (is_differentiable && shown.defined() && is_closed_outside(shown)) {
    throw UserError(ErrorKind::kNotImplemented,
                    "an input is written to with gradients on that is a view of a leaf, or that was made under "
                    "torch.no_grad() or by an operation with several results");
  }
  if (!target.requires_grad()) return;
  const at::Tensor real = real_behind(target);
  const bool is_view = state_of(target).view || (real.defined() && real.is_view());
  TORCH_CHECK(!is_leaf_of_program(target) && !is_leaf_of_program(root_tensor_of(target)),
              is_view ? "a view of a leaf" : "a leaf",
              " Variable that requires grad is being used in an in-place operation.");
}

bool Recorder::is_leaf_of_program(const at::Tensor& tensor) const {
  if (level_ != Level::kTop || !tensor.requires_grad() || !tensor.is_leaf()) return false;
  if (!is_input(tensor)) return true;
  const at::Tensor real = real_behind(tensor);
  return real.defined() && real.is_leaf();
}

bool Recorder::was_input(const at::Tensor& trace_tensor) const {
  return std::ranges::any_of(memories_, [&](const InputMemory& memory) { return memory.root.is_same(trace_tensor); });
}

std::vector<std::size_t> Recorder::written_inputs() const {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (state_of(memories_[memory_of_input_[i]].root).writes != 0) positions.push_back(i);
  }
  return positions;
}

std::vector<std::int32_t> Recorder::shared_memory_of_inputs() const {
  std::vector<std::int32_t> groups;
  for (const std::size_t memory : memory_of_input_) {
    groups.push_back(memories_[memory].storage == nullptr ? -1 : static_cast<std::int32_t>(memory));
  }
  return groups;
}

std::vector<std::pair<std::size_t, ir::ValueId>> Recorder::inputs_with_new_history() const {
  std::vector<std::pair<std::size_t, ir::ValueId>> result;
  for (const std::size_t i : written_inputs()) {
    const InputMemory& memory = memories_[memory_of_input_[i]];
    const ir::ValueId value = state_of(memory.root).value;
    const at::Tensor& real = real_inputs_[i];
    const bool is_parameter = real.defined() && real.is_leaf() && real.requires_grad();
    // Writes that autograd does not see leave the history as it was.
    // So does `requires_grad_()` after a write: it makes a leaf.
    const bool keeps_history =
        memory.root.is_leaf() || dynamic_cast<OutsideNode*>(memory.root.grad_fn().get()) != nullptr;
    if (!trace_.tensor_type(value)->requires_grad || is_parameter || keeps_history) continue;
    if (memory.storage != nullptr) refuse_shared(", and gets a gradient");
    result.emplace_back(i, value);
  }
  return result;
}

void Recorder::add_resize(const InputMemory& memory) {
  const auto sizes = memory.root.sizes();
  const auto add_resizing = [this](ir::BoundSymbol symbol) {
    symbol.comment = "resized by the program";
    add(std::move(symbol));
  };
  add_resizing(resize_symbol(memory.value, sizes));
  if (!memory.root.is_contiguous()) {
    add_resizing(lay_out_symbol(memory.value, sizes, memory.root.strides(), ir::None{}));
  }
}

void Recorder::copy_written_inputs() {
  for (InputMemory& memory : memories_) {
    TraceState& state = state_of(memory.root);
    if (state.view || std::exchange(memory.copied, state.writes) == state.writes) continue;
    const ir::ValueId value = value_of(memory.root);
    if (bridge::hints(trace_.tensor_type(memory.value)->sizes) != memory.root.sizes()) add_resize(memory);
    ir::BoundSymbol symbol = copy_symbol(memory.value, value);
    symbol.comment = "written by the program";
    add(std::move(symbol));
  }
}

void Recorder::return_written_memory() {
  copy_written_inputs();
  for (InputMemory& memory : memories_) {
    TraceState& state = state_of(memory.root);
    if (state.view || state.writes == 0 || trace_.tensor_type(state.value)->requires_grad) continue;
    if (trace_.tensor_type(state.value)->sizes != trace_.tensor_type(memory.value)->sizes) continue;
    state.value = memory.value;
    state.writes_seen = memory.copied = ++state.writes;  // views are recorded anew when they are next read
  }
}

}  // namespace thunder::tracer
