#include "tracer/input_memory.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/operators.h"
#include "tracer/recording.h"
#include "tracer/symbols.h"
#include "tracer/tensor_table.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

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

/// `t_`, `squeeze_`: an input that shows its memory in another way than at the start.
bool has_other_geometry(const at::Tensor& input, const ir::TensorType& type) {
  if (!state_of(input).view) return false;
  return bridge::hints(type.sizes) != input.sizes() || bridge::hints(type.strides) != input.strides() ||
         type.storage_offset.hint != input.storage_offset();
}

ir::BoundSymbol set_geometry(ir::ValueId value, const at::Tensor& input, const ir::TensorType& type) {
  if (input.requires_grad() && !input.is_leaf()) {
    throw UserError(
        ErrorKind::kNotImplemented,
        "an input that autograd made is turned in place (t_, squeeze_, transpose_); use the variant without "
        "the underscore");
  }
  // It begins where it did, wherever that is at a call.
  const bool is_moved = type.storage_offset.hint != input.storage_offset();
  ir::BoundSymbol symbol = lay_out_symbol(value, input.sizes(), input.strides(),
                                          is_moved ? ir::Argument(input.storage_offset()) : ir::Argument(ir::None{}));
  symbol.comment = "turned by the program";
  return symbol;
}

}  // namespace

void InputMemory::add(const at::Tensor& input) {
  memories_.push_back({input, state_of(input).value});
  memory_of_input_.push_back(memories_.size() - 1);
}

std::size_t InputMemory::add_storage(const at::Tensor& real, ir::ValueId input) {
  ir::TensorType type = bridge::type_of(real);
  const auto count = static_cast<std::int64_t>(real.storage().nbytes() / real.element_size());
  type.sizes = {ir::Dim(count)};
  type.strides = {ir::Dim(1)};
  type.storage_offset = 0;
  const at::Tensor base = tensors_.add(ir::make_type(std::move(type)), "storage");
  ir::BoundSymbol symbol;
  symbol.op = operator_for(as_strided_handle());
  symbol.arguments = {ir::Argument(input), ir::ArgumentList{count}, ir::ArgumentList{1}, ir::Argument(0)};
  symbol.results.emplace_back(state_of(base).value);
  symbol.comment = "inputs share this memory";
  recording_.builder.add(std::move(symbol));
  memories_.push_back({base, state_of(base).value, storage_of(real)});
  return memories_.size() - 1;
}

void InputMemory::lay_into_storage(const at::Tensor& real, const at::Tensor& input) {
  const c10::StorageImpl* storage = storage_of(real);
  if (std::ranges::find(shared_storages, storage) == shared_storages.end()) {
    const bool is_written = std::ranges::any_of(tensors_.inputs(), [&](const at::Tensor& other) {
      const auto position = static_cast<std::size_t>(&other - tensors_.inputs().data());
      return !other.is_same(input) && storage_of(tensors_.real_inputs()[position]) == storage &&
             root_of(state_of(other)).writes != 0;
    });
    if (is_written) found_shared(storage);
    return;
  }
  if (real.sizes() != input.sizes() || real.scalar_type() != input.scalar_type()) {
    refuse_shared(", which a transform replaced");
  }
  if (real.requires_grad()) refuse_shared(", and requires grad");
  if (real.is_conj() || real.is_neg()) refuse_shared(" as its conjugate or negative");
  auto memory = std::ranges::find(memories_, storage, &Memory::storage) - memories_.begin();
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

void InputMemory::found_shared(const c10::StorageImpl* storage) {
  // Twice: one of its inputs was refused before, and the program has caught that.
  if (std::ranges::find(shared_storages, storage) == shared_storages.end()) shared_storages.push_back(storage);
  refuse_shared("");
}

void InputMemory::note_turned(const at::Tensor& before, const at::Tensor& kept) {
  for (Memory& memory : memories_) {
    if (memory.root.is_same(before)) memory.root = kept;
  }
}

bool InputMemory::is_shared(const TraceState& root) const {
  return std::ranges::any_of(
      memories_, [&](const Memory& memory) { return memory.storage != nullptr && &state_of(memory.root) == &root; });
}

bool InputMemory::has(const TraceState& root) const {
  return std::ranges::any_of(memories_, [&](const Memory& memory) { return &root_of(state_of(memory.root)) == &root; });
}

bool InputMemory::is_first_value(ir::ValueId value) const {
  return std::ranges::find(memories_, value, &Memory::value) != memories_.end();
}

void InputMemory::require_separate(const TraceState& root) {
  const auto has_root = [&](const at::Tensor& input) { return &root_of(state_of(input)) == &root; };
  const std::vector<at::Tensor>& inputs = tensors_.inputs();
  const auto written = std::ranges::find_if(inputs, has_root) - inputs.begin();
  if (written == std::ssize(inputs)) return;
  const c10::StorageImpl* storage = storage_of(tensors_.real_inputs()[static_cast<std::size_t>(written)]);
  if (storage == nullptr) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (storage_of(tensors_.real_inputs()[i]) == storage && !has_root(inputs[i])) found_shared(storage);
  }
}

bool InputMemory::was_input(const at::Tensor& trace_tensor) const {
  return std::ranges::any_of(memories_, [&](const Memory& memory) { return memory.root.is_same(trace_tensor); });
}

std::vector<std::size_t> InputMemory::written_inputs() const {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < tensors_.inputs().size(); ++i) {
    if (state_of(memories_[memory_of_input_[i]].root).writes != 0) positions.push_back(i);
  }
  return positions;
}

std::vector<std::int32_t> InputMemory::groups() const {
  std::vector<std::int32_t> groups;
  for (const std::size_t memory : memory_of_input_) {
    groups.push_back(memories_[memory].storage == nullptr ? -1 : static_cast<std::int32_t>(memory));
  }
  return groups;
}

std::vector<std::pair<std::size_t, ir::ValueId>> InputMemory::inputs_with_new_history() const {
  std::vector<std::pair<std::size_t, ir::ValueId>> result;
  for (const std::size_t i : written_inputs()) {
    const Memory& memory = memories_[memory_of_input_[i]];
    const ir::ValueId value = state_of(memory.root).value;
    // Writes that autograd does not see leave the history as it was.
    // So does `requires_grad_()` after a write: it makes a leaf.
    const bool keeps_history =
        memory.root.is_leaf() || dynamic_cast<OutsideNode*>(memory.root.grad_fn().get()) != nullptr;
    if (!recording_.builder.trace().tensor_type(value)->requires_grad || keeps_history) continue;
    if (memory.storage != nullptr) refuse_shared(", and gets a gradient");
    result.emplace_back(i, value);
  }
  return result;
}

void InputMemory::add_resize(const Memory& memory) {
  const auto sizes = memory.root.sizes();
  const auto add_resizing = [this](ir::BoundSymbol symbol) {
    symbol.comment = "resized by the program";
    recording_.builder.add(std::move(symbol));
  };
  add_resizing(resize_symbol(memory.value, sizes));
  if (!memory.root.is_contiguous()) {
    add_resizing(lay_out_symbol(memory.value, sizes, memory.root.strides(), ir::None{}));
  }
}

void InputMemory::copy_written() {
  const ir::Trace& trace = recording_.builder.trace();
  for (Memory& memory : memories_) {
    TraceState& state = state_of(memory.root);
    if (state.view || std::exchange(memory.copied, state.writes) == state.writes) continue;
    const ir::ValueId value = recording_.value_of(memory.root);
    if (bridge::hints(trace.tensor_type(memory.value)->sizes) != memory.root.sizes()) add_resize(memory);
    ir::BoundSymbol symbol = copy_symbol(memory.value, value);
    symbol.comment = "written by the program";
    recording_.builder.add(std::move(symbol));
  }
}

void InputMemory::return_written() {
  copy_written();
  const ir::Trace& trace = recording_.builder.trace();
  for (Memory& memory : memories_) {
    TraceState& state = state_of(memory.root);
    if (state.view || state.writes == 0 || trace.tensor_type(state.value)->requires_grad) continue;
    if (trace.tensor_type(state.value)->sizes != trace.tensor_type(memory.value)->sizes) continue;
    state.value = memory.value;
    state.writes_seen = memory.copied = ++state.writes;  // views are recorded anew when they are next read
  }
}

void InputMemory::set_turned_geometry() {
  for (std::size_t i = 0; i < tensors_.inputs().size(); ++i) {
    const ir::ValueId value = recording_.builder.trace().inputs[i];
    const at::Tensor& input = tensors_.inputs()[i];
    const ir::TensorType& type = *recording_.builder.trace().tensor_type(value);
    if (has_other_geometry(input, type)) recording_.builder.add(set_geometry(value, input, type));
  }
}

}  // namespace thunder::tracer
