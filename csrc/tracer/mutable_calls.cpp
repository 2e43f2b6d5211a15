#include "tracer/mutable_calls.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/call_builder.h"
#include "tracer/composites.h"
#include "tracer/evaluate.h"
#include "tracer/functional_form.h"
#include "tracer/map_tensors.h"
#include "tracer/memory_overlap.h"
#include "tracer/operators.h"
#include "tracer/probe.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"
#include "tracer/write_checks.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// PyTorch's own operators count as writes to autograd when their name says so; others write to what autograd may have
/// saved before them (`rrelu_with_noise` to its noise).
bool counts_as_write(const c10::OperatorHandle& op, bool is_out) {
  const std::string& name = op.operator_name().name;
  return is_out || name.ends_with("_") || !name.starts_with("aten::");
}

/// `t_`, `resize_`: writes nothing to memory.
bool changes_geometry(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::inplace_view); }

/// Returns an argument that a factory takes and its `out=` variant does not: as `out` has it.
IValue option_for(const std::string& name, const at::Tensor& out) {
  if (name == "dtype") return static_cast<std::int64_t>(out.scalar_type());
  return name == "device" ? IValue(out.device()) : IValue();
}

/// Arguments of `from`, without those behind its own, in the order of a schema that is called with the same.
void put_in_order_of(const c10::FunctionSchema& to, const c10::FunctionSchema& from, const at::Tensor& out,
                     std::vector<IValue>& arguments) {
  std::vector<IValue> ordered;
  for (const c10::Argument& parameter : to.arguments()) {
    const auto position = from.argumentIndexWithName(parameter.name());
    const bool is_given = position && static_cast<std::size_t>(*position) < arguments.size();
    if (!is_given && !is_factory_option(parameter.name())) return;
    ordered.push_back(is_given ? arguments[static_cast<std::size_t>(*position)] : option_for(parameter.name(), out));
  }
  if (ordered.size() >= arguments.size()) arguments = std::move(ordered);
}

/// `normal_` and its like, and `zero_`: nothing of the target is left. Their functional variants have no derivative, or
/// not for all dtypes.
bool fills(const c10::OperatorHandle& op) {
  if (has_fact(op, Fact::kOverwrites) && !operator_for(op)->random) return true;
  const auto& parameters = op.schema().arguments();
  const auto is_tensor = [](const c10::Argument& parameter) {
    return parameter.type()->isSubtypeOf(*c10::TensorType::get());
  };
  return operator_for(op)->random && op.operator_name().name.ends_with("_") &&
         std::ranges::count_if(parameters, is_tensor) == 1 && !is_composite(op);
}

/// Fills `target` with random numbers, whose order follows the layout of its memory.
bool draws_by_layout(const c10::OperatorHandle& op, const at::Tensor& target) {
  const bool draws = operator_for(op)->random && (fills(op) || has_fact(op, Fact::kOverwrites));
  return draws && !target.is_contiguous();
}

/// A composite, given a leaf, that may not write after all (`dropout_` with `train=False`): what it calls knows.
bool is_left_to_parts(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!is_composite(op) || !op.operator_name().name.ends_with("_") || !arguments[0].isTensor()) return false;
  const at::Tensor root = root_tensor_of(arguments[0].toTensor());
  return root.requires_grad() && root.is_leaf();
}

/// Random numbers for no elements: nothing to do, whatever the dtype.
bool fills_nothing(const c10::OperatorHandle& op, const IValue& target) {
  return operator_for(op)->random && op.operator_name().name.ends_with("_") && target.isTensor() &&
         target.toTensor().numel() == 0;
}

/// A call of an operator that writes.
struct MutableCall {
  MutableCall(Recorder& recording, const c10::OperatorHandle& called, std::span<const IValue> given, Level at)
      : recorder(recording), op(called), level(at), arguments(given.begin(), given.end()) {
    const auto& parameters = op.schema().arguments();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!is_written_to(parameters[i])) continue;
      is_out |= parameters[i].kwarg_only();
      for (at::Tensor& target : tensors_of(std::span(arguments).subspan(i, 1))) {
        targets.push_back(std::move(target));
        positions.push_back(i);
      }
    }
  }

  /// All but each `out=`.
  [[nodiscard]] std::vector<IValue> arguments_that_are_read() const {
    const auto& parameters = op.schema().arguments();
    std::vector<IValue> read;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!is_written_to(parameters[i]) || !parameters[i].kwarg_only()) read.push_back(arguments[i]);
    }
    return read;
  }
  [[nodiscard]] bool has(Fact fact) const { return has_fact(op, fact); }
  /// Refuses calls that do something else with copies of what they write to: nothing tells what autograd makes of the
  /// writes, and what shares memory with a target would not change with it.
  void require_copies_to_do() const {
    const std::vector<at::Tensor> tensors = tensors_of(arguments);
    for (const at::Tensor& tensor : tensors) {
      if (c10::GradMode::is_enabled() && tensor.requires_grad()) {
        refuse(op, "it writes to its arguments, and one of them requires grad; call it under torch.no_grad()");
      }
    }
    for (const at::Tensor& target : targets) {
      const auto overlapping = [&](const at::Tensor& other) { return share_elements(target, other); };
      if (std::ranges::count_if(tensors, overlapping) > 1) {
        refuse(op, "it writes to an argument that shares memory with another one; pass a clone of one of them");
      }
    }
  }

  /// Raises as eager what follows from the arguments alone.
  void require_as_eager() const {
    require_separate_elements(op, arguments, targets);
    const std::vector<at::Tensor> tensors = tensors_of(arguments);
    const auto requires_grad = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
    if (is_out && c10::GradMode::is_enabled() && std::ranges::any_of(tensors, requires_grad)) {
      raise_as_eager(op, arguments);
    }
  }

  [[nodiscard]] std::vector<IValue> call_counterpart(const c10::OperatorHandle& functional) const;
  [[nodiscard]] bool shows_other_argument(const at::Tensor& result, const at::Tensor& target) const;
  /// Draws the numbers of the call in fresh memory that is laid out as its target.
  [[nodiscard]] at::Tensor fill_alike() const;
  /// Gives a target what the counterpart computed for it.
  void assign_result(std::size_t position, at::Tensor result) const;

  Recorder& recorder;
  c10::OperatorHandle op;
  Level level;
  std::vector<IValue> arguments;
  std::vector<at::Tensor> targets;
  std::vector<std::size_t> positions;  ///< positions of the targets among the arguments
  bool is_out = false;
};

std::vector<IValue> MutableCall::call_counterpart(const c10::OperatorHandle& functional) const {
  const at::Tensor& first = targets[0];
  if (operator_for(op)->random && is_out && !first.is_contiguous()) {
    refuse(op, "random numbers with a strided out= cannot be traced; use the variant that returns its result");
  }
  if (draws_by_layout(op, first)) return {fill_alike()};
  torch::jit::Stack stack = is_functional_form(functional) ? arguments : arguments_that_are_read();
  put_in_order_of(functional.schema(), op.schema(), first, stack);
  const bool differentiable = std::ranges::any_of(
      targets, [](const at::Tensor& target) { return torch::autograd::isDifferentiableType(target.scalar_type()); });
  const c10::AutoGradMode mode(c10::GradMode::is_enabled() && differentiable && !fills(op));
  recorder.call_functional(functional, stack, level);
  return stack;
}

/// Whether a result is memory of an argument, as `conj_physical` of real numbers is: its `out=` gets a copy of that.
bool MutableCall::shows_other_argument(const at::Tensor& result, const at::Tensor& target) const {
  return std::ranges::any_of(tensors_of(arguments), [&](const at::Tensor& argument) {
    return !share_memory(argument, target) && share_memory(argument, result);
  });
}

at::Tensor MutableCall::fill_alike() const {
  const at::Tensor& target = targets[0];
  torch::jit::Stack stack = arguments;
  stack[0] = CallBuilder(recorder).empty_strided_like(target);
  const c10::AutoGradMode no_gradients(false);
  op.callBoxed(stack);
  return stack[0].toTensor();
}

void MutableCall::assign_result(std::size_t position, at::Tensor result) const {
  const at::Tensor& target = targets[position];
  if (is_out && has(Fact::kKeepsShapeOfOut) && result.numel() == target.numel()) {
    result = CallBuilder(recorder).reshape(result, target.sizes());
  }
  if (level == Level::kTop && !changes_geometry(op)) {
    require_fitting_result(op, arguments, target, result, is_out);
  }
  if (is_out && shows_other_argument(result, target)) {
    result = CallBuilder(recorder).clone(result);
  }
  const bool may_have_tangent = recorder.may_have_tangents() && target.is_floating_point();
  torch::autograd::edge_list edges = edges_to(tensors_of(arguments));
  const bool is_in_question =
      !result.requires_grad() && c10::GradMode::is_enabled() && (!edges.empty() || may_have_tangent);
  const bool is_seen = !is_in_question || autograd_sees_write(op, arguments, positions[position]);
  const c10::AutoGradMode mode(c10::GradMode::is_enabled() && is_seen);
  if (!is_seen && may_have_tangent)
    result = recorder.writes.with_tangent_of(recorder.writes.copy_like(target, result), target);
  const auto version = target.is_inference() ? 0 : target._version();
  TraceNode* node = as_trace_node(result.grad_fn().get());
  const ir::ValueId before = trace_impl(target)->state()->value;
  const ir::ValueId made = trace_impl(result)->state()->value;
  recorder.writes.assign(op, target, std::move(result), /*may_resize=*/is_out || has(Fact::kResizes));
  if (node != nullptr && recorder.level() == Level::kTop) node->note_written(op, before, made, target);
  const bool is_overwritten = is_in_question && is_seen && recorder.level() == Level::kTop && !is_out;
  if (is_overwritten && !has(Fact::kDetaches)) overwrite_history(target, std::move(edges));
  if (counts_as_write(op, is_out) || target.is_inference()) return;
  c10::VariableVersion counter = target.unsafeGetTensorImpl()->version_counter();
  counter.set_version(version);
}

bool is_uninitialized(const ir::Trace& trace, const at::Tensor& tensor) {
  const TraceState& state = *trace_impl(tensor)->state();
  if (state.view || state.writes != 0) return false;
  // The symbol that made it is among the last ones: such tensors are filled at once.
  const auto& symbols = trace.symbols;
  constexpr std::ptrdiff_t kReach = 8;
  const auto from = symbols.end() - std::min<std::ptrdiff_t>(kReach, std::ssize(symbols));
  const auto maker = std::find_if(from, symbols.end(), [&](const ir::BoundSymbol& symbol) {
    return symbol.results.size() == 1 && symbol.results[0] == ir::Argument(state.value);
  });
  return maker != symbols.end() && operators::has_fact(*maker->op, Fact::kIsUninitialized);
}

/// Refuses a call that writes to something empty beside what it computes with: its kernel gives that a size, as the
/// observers of quantized channels do with their first extremes.
void require_sized_targets(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const auto& parameters = op.schema().arguments();
  const bool has_elements = arguments[0].isTensor() && arguments[0].toTensor().numel() != 0;
  for (std::size_t i = 1; has_elements && i < parameters.size(); ++i) {
    if (!is_written_to(parameters[i]) || parameters[i].kwarg_only() || !arguments[i].isTensor()) continue;
    if (arguments[i].toTensor().numel() == 0) refuse(op, "an empty `" + parameters[i].name() + "` is given a size");
  }
}

/// Random fills of fresh memory stay in place: the order of the numbers follows the memory's layout.
bool call_random_fill(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  if (!operator_for(op)->random || !arguments[0].isTensor()) return false;
  if (!is_uninitialized(recorder.trace(), arguments[0].toTensor())) return false;
  const at::Tensor& target = arguments[0].toTensor();
  ResultTypes types;
  types.results.emplace_back();
  types.results[0].tensors.emplace_back();
  types.results[0].tensors[0].type = ir::make_type(bridge::type_of(target));
  const std::vector<IValue> results = recorder.record(op, arguments, types, Level::kTop);
  torch::jit::drop(stack, count);
  recorder.writes.write(target, results[0].toTensor(), c10::GradMode::is_enabled());
  if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
  stack.emplace_back(target);
  return true;
}

}  // namespace

void require_writable_targets(const Recorder& recorder, const c10::OperatorHandle& op,
                              std::span<const IValue> arguments) {
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!is_written_to(parameters[i]) || parameters[i].kwarg_only()) continue;
    for (const at::Tensor& target : tensors_of(arguments.subspan(i, 1))) {
      if (is_trace_tensor(target)) recorder.writes.require_writable(target, target);
    }
  }
}

void call_mutable(Recorder& recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  const std::size_t count = op.schema().arguments().size();
  const auto arguments = std::span(stack).last(count);
  if (has_fact(op, Fact::kReplacesStorage)) refuse(op, "another memory for a tensor cannot be traced; use copy_");
  if (has_fact(op, Fact::kResizes)) {
    const at::Tensor target = arguments[0].toTensor();
    if (target.requires_grad()) refuse(op, "a tensor that requires grad is resized");
    // It takes the elements in the order of the memory, gaps included.
    if (!target.is_non_overlapping_and_dense()) refuse(op, "a tensor that has gaps is resized");
    if (!arguments[2].isNone() && !target.is_contiguous()) refuse(op, "the memory format of a tensor is changed");
    const std::vector<std::int64_t> sizes = arguments[1].toIntVector();
    if (target.sizes() == sizes) return torch::jit::drop(stack, count - 1);
    // Their memory may be larger than they are, and has elements then that the trace does not know.
    const bool may_hide_elements = recorder.tensors.is_input(target) || trace_impl(target)->state()->writes != 0;
    if (may_hide_elements && c10::multiply_integers(sizes) > target.numel()) {
      refuse(op, "a tensor grows in memory that may have held other elements");
    }
    const auto is_alive = [](const std::weak_ptr<TraceState>& view) { return !view.expired(); };
    if (std::ranges::any_of(trace_impl(target)->state()->shown_by, is_alive)) {
      refuse(op, "a tensor is resized of which there are views");
    }
  }
  if (is_left_to_parts(op, arguments)) return recorder.call_parts(op, stack);
  if (has_fact(op, Fact::kCopies)) {
    const at::Tensor target = arguments[0].toTensor();
    const at::Tensor source = arguments[1].toTensor();
    if (level == Level::kTop) {
      require_separate_elements(op, arguments, {&target, 1});
      if (!at::is_expandable_to(source.sizes(), target.sizes())) raise_as_eager(op, arguments);
    }
    torch::jit::drop(stack, count);
    const at::Tensor copy = recorder.writes.copy_like(target, source);
    recorder.writes.assign(op, target, recorder.history.overwriting(target, copy), /*may_resize=*/false);
    stack.emplace_back(target);
    return;
  }
  if (level == Level::kTop && operator_for(op)->random) require_writable_targets(recorder, op, arguments);
  if (fills_nothing(op, arguments[0])) {
    const at::Tensor& target = arguments[0].toTensor();
    if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
    return torch::jit::drop(stack, count - 1);
  }
  if (call_random_fill(recorder, op, stack)) return;
  const auto functional = functional_counterpart(op);
  if (!functional) {
    if (is_composite(op)) {
      call_composite(op, stack);
      return;
    }
    refuse(op, "this in-place operation cannot be traced; use one that returns its result");
  }
  require_sized_targets(op, arguments);
  const MutableCall call(recorder, op, arguments, level);
  if (!std::ranges::all_of(call.targets, is_trace_tensor)) refuse(op, "a number is given as out=");
  if (is_functional_form(*functional)) call.require_copies_to_do();
  if (level == Level::kTop && !changes_geometry(op)) call.require_as_eager();
  torch::jit::drop(stack, count);
  std::vector<IValue> results = call.call_counterpart(*functional);
  const auto& returns = op.schema().returns();
  const auto fresh = static_cast<std::size_t>(std::ranges::count_if(returns, std::not_fn(is_written_to)));
  std::vector<at::Tensor> written = tensors_of(std::span(results).subspan(fresh));
  if (written.size() < call.targets.size()) refuse(op, "this in-place operation cannot be traced");
  for (std::size_t i = 0; i < call.targets.size(); ++i) call.assign_result(i, std::move(written[i]));
  std::size_t next_fresh = 0;
  std::size_t next_target = 0;
  for (const c10::Argument& result : returns) {
    stack.push_back(is_written_to(result) ? IValue(call.targets[next_target++]) : results[next_fresh++]);
  }
}

}  // namespace thunder::tracer
