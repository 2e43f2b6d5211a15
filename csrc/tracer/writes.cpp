// How a recorder turns writes into new values.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

TraceState& root_of(TraceState& state) {
  TraceState* current = &state;
  while (current->view) current = trace_impl(current->view->parent)->state().get();
  return *current;
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& reason) {
  throw UserError(ErrorKind::kNotImplemented, op.schema().name() + ": " + reason);
}

bool is_written_argument(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// The tensors of one argument or result: itself or the elements of a list.
std::vector<at::Tensor> tensors_in(const IValue& value) { return tensors_of({&value, 1}); }

}  // namespace

void Recorder::call_mutable(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  if (op.operator_name().name == "aten::copy_") {
    const at::Tensor target = stack[stack.size() - 3].toTensor();
    const at::Tensor source = stack[stack.size() - 2].toTensor();
    torch::jit::drop(stack, 3);
    assign(op, target, copy_like(target, source), /*may_resize=*/false);
    stack.emplace_back(target);
    return;
  }
  if (call_random_fill(op, stack)) return;
  const auto functional = functional_counterpart(op);
  if (!functional) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
      return;
    }
    refuse(op, "this in-place operation cannot be traced; use one that returns its result");
  }
  const auto& parameters = op.schema().arguments();
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(parameters.size()), stack.end());
  torch::jit::drop(stack, parameters.size());
  std::vector<at::Tensor> targets;
  torch::jit::Stack results;
  bool is_out = false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool written = is_written_argument(parameters[i]);
    is_out |= written && parameters[i].kwarg_only();
    if (!written || !parameters[i].kwarg_only()) results.push_back(arguments[i]);
    if (!written) continue;
    for (at::Tensor& target : tensors_in(arguments[i])) targets.push_back(std::move(target));
  }
  call_functional(*functional, results, level);
  const std::vector<at::Tensor> sources = tensors_of(results);
  if (sources.size() < targets.size()) refuse(op, "this in-place operation cannot be traced");
  for (std::size_t i = 0; i < targets.size(); ++i) assign(op, targets[i], sources[i], is_out);
  std::size_t next = 0;
  for (std::size_t i = 0; i < op.schema().returns().size(); ++i) stack.emplace_back(targets[next++]);
}

void Recorder::refuse_unless_leaf(const c10::OperatorHandle& op, const at::Tensor& input) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (trace_impl(inputs_[i])->state() != trace_impl(input)->state()) continue;
    if (!real_inputs_[i].defined() || real_inputs_[i].is_leaf()) return;
    refuse(op, "writing in place to an input that is not a leaf and requires grad is not supported; pass a clone");
  }
}

bool Recorder::call_random_fill(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  if (!operator_for(op)->random || !arguments[0].isTensor() || !is_uninitialized(arguments[0].toTensor())) return false;
  const at::Tensor& target = arguments[0].toTensor();
  ResultTypes types;
  types.results.emplace_back();
  types.results[0].tensors.emplace_back();
  types.results[0].tensors[0].type = ir::make_type(bridge::type_of(target));
  const std::vector<IValue> results = record(op, arguments, types, Level::kTop);
  torch::jit::drop(stack, count);
  write(target, results[0].toTensor(), c10::GradMode::is_enabled());
  stack.emplace_back(target);
  return true;
}

bool Recorder::is_uninitialized(const at::Tensor& tensor) const {
  const TraceState& state = *trace_impl(tensor)->state();
  if (state.view || state.writes != 0) return false;
  // The symbol that made it is among the last ones: such tensors are filled at once.
  const auto& symbols = trace_.symbols;
  constexpr std::ptrdiff_t kReach = 8;
  const auto from = symbols.end() - std::min<std::ptrdiff_t>(kReach, std::ssize(symbols));
  const auto maker = std::find_if(from, symbols.end(), [&](const ir::BoundSymbol& symbol) {
    return symbol.results.size() == 1 && symbol.results[0] == ir::Argument(state.value);
  });
  return maker != symbols.end() &&
         (maker->op->name.starts_with("aten::empty") || maker->op->name.starts_with("aten::new_empty"));
}

void Recorder::assign(const c10::OperatorHandle& op, const at::Tensor& target, at::Tensor source, bool may_resize) {
  TraceTensorImpl* impl = trace_impl(target);
  const TraceTensorImpl* source_impl = trace_impl(source);
  if (target.requires_grad() && c10::GradMode::is_enabled() && is_input(target)) {
    refuse_unless_leaf(op, target);
    throw UserError(ErrorKind::kRuntime, "a leaf Variable that requires grad is being used in an in-place operation.");
  }
  if (!may_resize && source_impl->state()->view && share_memory(source, target)) {
    // `t_`, `squeeze_`: the target becomes another view of its memory; what it was before stays as the view's parent.
    const std::shared_ptr<TraceState> state = source_impl->state();
    if (state->view->parent.is_same(target)) {
      state->view->parent = make_trace_tensor(bridge::type_of(target), impl->state(), target.storage());
      state->view->arguments[0] = state->view->parent;
    }
    impl->set_state(state);
    impl->set_geometry(source.sizes(), source.strides(), source.storage_offset());
    return;
  }
  if (!source.sizes().equals(target.sizes())) {
    if (!may_resize || impl->state()->view) {
      throw UserError(ErrorKind::kRuntime, op.schema().name() + ": expected a result of shape " +
                                               c10::str(target.sizes()) + ", got " + c10::str(source.sizes()));
    }
    impl->set_geometry(source.sizes(), source.strides(), 0);
  }
  const bool fits = source.scalar_type() == target.scalar_type() && source.device() == target.device() &&
                    (impl->state()->view || source.strides().equals(target.strides()));
  write(target, fits ? source : copy_like(target, source), c10::GradMode::is_enabled());
}

at::Tensor Recorder::copy_like(const at::Tensor& target, const at::Tensor& source) {
  const at::Tensor expanded = source.sizes().equals(target.sizes())
                                  ? source
                                  : call_by_name("aten::expand", "", {source, target.sizes().vec()})[0].toTensor();
  if (!target.is_contiguous() && !trace_impl(target)->state()->view && !source.requires_grad()) {
    return call_by_name("aten::copy", "", {target, expanded})[0].toTensor();  // keeps the target's strides
  }
  return call_by_name("aten::_to_copy", "",
                      {expanded, static_cast<std::int64_t>(target.scalar_type()), IValue(), target.device(), false,
                       false, static_cast<std::int64_t>(at::MemoryFormat::Contiguous)})[0]
      .toTensor();
}

void Recorder::write(const at::Tensor& target, const at::Tensor& source, bool recorded) {
  TraceState& state = *trace_impl(target)->state();
  const ir::ValueId before = state.value;
  if (source.requires_grad() && !target.requires_grad()) target.set_requires_grad(true);
  ir::ValueId value = value_of(source);
  if (!recorded && target.requires_grad() && !source.requires_grad()) value = with_gradient_of(value, before);
  if (state.view) {
    const at::Tensor parent = state.view->parent;
    const bool detached = state.view->op.operator_name().name == "aten::detach";
    write(parent, scatter_into_parent(state, source), recorded && !detached);
  } else {
    ++state.writes;
  }
  state.value = value;
  state.writes_seen = root_of(state).writes;
}

at::Tensor Recorder::scatter_into_parent(const TraceState& view, const at::Tensor& source) {
  auto call = write_through(*view.view, source);
  if (!call) {
    refuse(view.view->op,
           "writing through this view cannot be traced; write to a clone, or use an operation that "
           "returns its result");
  }
  return call_by_name(call->name, call->overload, std::move(call->arguments))[0].toTensor();
}

void Recorder::refresh(TraceState& state) {
  if (!state.view) return;
  const std::uint32_t writes = root_of(state).writes;
  if (state.writes_seen == writes) return;
  state.writes_seen = writes;
  const ViewOf view = *state.view;
  std::vector<IValue> results = view.arguments;
  call_functional(view.op, results, Level::kTop);
  const at::Tensor fresh = tensors_of(results).at(view.result);
  state.value = trace_impl(fresh)->state()->value;
}

}  // namespace thunder::tracer
