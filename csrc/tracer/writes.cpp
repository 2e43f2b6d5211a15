// How a recorder turns writes into new values.
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
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/probe.h"
#include "tracer/recorder.h"
#include "tracer/scatters.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::tracer {
namespace {

using c10::IValue;
using torch::autograd::impl::gradient_edge;
using torch::autograd::impl::set_gradient_edge;

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& reason) {
  throw UserError(ErrorKind::kNotImplemented, op.schema().name() + ": " + reason);
}

bool is_written_argument(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// PyTorch's own operators count as writes to autograd when their name says so; others write to what autograd may have
/// saved before them (`rrelu_with_noise` to its noise).
bool counts_as_write(const c10::OperatorHandle& op, bool is_out) {
  const std::string& name = op.operator_name().name;
  return is_out || name.ends_with("_") || !name.starts_with("aten::");
}

/// What a factory takes besides what its `out=` variant takes: as `out` has it.
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

/// Fill an `out=` of as many elements in its own shape.
bool keeps_shape(const c10::OperatorHandle& op) {
  static constexpr std::string_view kNames[] = {"aten::arange",   "aten::range",       "aten::linspace",
                                                "aten::logspace", "aten::fft_fftfreq", "aten::fft_rfftfreq"};
  return op.operator_name().overload_name.ends_with("out") &&
         std::ranges::find(kNames, op.operator_name().name) != std::end(kNames);
}

/// `normal_` and its like, and `zero_`: nothing of the target is left. Their functional variants have no derivative, or
/// not for all dtypes.
bool fills(const c10::OperatorHandle& op) {
  if (op.operator_name().name == "aten::zero_") return true;
  const auto& parameters = op.schema().arguments();
  const auto is_tensor = [](const c10::Argument& parameter) {
    return parameter.type()->isSubtypeOf(*c10::TensorType::get());
  };
  return operator_for(op)->random && op.operator_name().name.ends_with("_") &&
         std::ranges::count_if(parameters, is_tensor) == 1 &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

/// A composite, given a leaf, that may not write after all (`dropout_` with `train=False`): what it calls knows.
bool is_left_to_parts(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const bool is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (!is_composite || !op.operator_name().name.ends_with("_") || !arguments[0].isTensor()) return false;
  at::Tensor root = arguments[0].toTensor();
  while (trace_impl(root)->state()->view) root = at::Tensor(trace_impl(root)->state()->view->parent);
  return root.requires_grad() && root.is_leaf();
}

/// A view of what `detach` gave: a write to it has a gradient that the memory has not.
bool shows_detached(const TraceState& state) {
  for (const TraceState* view = &state; view->view; view = trace_impl(view->view->parent)->state().get()) {
    if (is_detached(*view->view)) return true;
  }
  return false;
}

/// The tensors of one argument or result: itself or the elements of a list.
std::vector<at::Tensor> tensors_in(const IValue& value) { return tensors_of({&value, 1}); }

}  // namespace

void Recorder::call_mutable(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  const auto& parameters = op.schema().arguments();
  if (is_left_to_parts(op, std::span(stack).last(parameters.size()))) return call_parts(op, stack);
  if (op.operator_name().name == "aten::copy_") {
    const at::Tensor target = stack[stack.size() - 3].toTensor();
    const at::Tensor source = stack[stack.size() - 2].toTensor();
    torch::jit::drop(stack, 3);
    assign(op, target, copy_like(target, source), /*may_resize=*/false);
    stack.emplace_back(target);
    return;
  }
  const bool fills_nothing = operator_for(op)->random && stack[stack.size() - parameters.size()].isTensor() &&
                             stack[stack.size() - parameters.size()].toTensor().numel() == 0 &&
                             op.operator_name().name.ends_with("_");
  if (fills_nothing) return torch::jit::drop(stack, parameters.size() - 1);  // whatever the dtype
  if (call_random_fill(op, stack)) return;
  const auto functional = functional_counterpart(op);
  if (!functional) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
      return;
    }
    refuse(op, "this in-place operation cannot be traced; use one that returns its result");
  }
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(parameters.size()), stack.end());
  torch::jit::drop(stack, parameters.size());
  std::vector<at::Tensor> targets;
  std::vector<std::size_t> target_positions;  // among the arguments
  torch::jit::Stack results;
  bool is_out = false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool written = is_written_argument(parameters[i]);
    is_out |= written && parameters[i].kwarg_only();
    if (!written || !parameters[i].kwarg_only()) results.push_back(arguments[i]);
    if (!written) continue;
    for (at::Tensor& target : tensors_in(arguments[i])) {
      targets.push_back(std::move(target));
      target_positions.push_back(i);
    }
  }
  if (operator_for(op)->random && is_out && !targets[0].is_contiguous()) {
    refuse(op, "random numbers with a strided out= cannot be traced; use the variant that returns its result");
  }
  put_in_order_of(functional->schema(), op.schema(), targets[0], results);
  {
    const bool differentiable = std::ranges::any_of(
        targets, [](const at::Tensor& target) { return torch::autograd::isDifferentiableType(target.scalar_type()); });
    const c10::AutoGradMode mode(c10::GradMode::is_enabled() && differentiable && !fills(op));
    call_functional(*functional, results, level);
  }
  const auto& returns = op.schema().returns();
  const auto fresh = static_cast<std::size_t>(std::ranges::count_if(returns, std::not_fn(is_written_argument)));
  const std::vector<at::Tensor> sources = tensors_of(std::span(results).subspan(fresh));
  if (sources.size() < targets.size()) refuse(op, "this in-place operation cannot be traced");
  const bool may_resize = is_out || op.operator_name().name == "aten::resize_";
  for (std::size_t i = 0; i < targets.size(); ++i) {
    at::Tensor source = keeps_shape(op) && sources[i].numel() == targets[i].numel()
                            ? call_by_name("aten::reshape", "", {sources[i], targets[i].sizes().vec()})[0].toTensor()
                            : sources[i];
    // What is recorded as a region may be pushed forward.
    const bool may_have_tangent = adopt != nullptr && targets[i].is_floating_point();
    torch::autograd::edge_list edges = edges_to(tensors_of(arguments));
    const bool is_in_question =
        !source.requires_grad() && c10::GradMode::is_enabled() && (!edges.empty() || may_have_tangent);
    const bool is_seen = !is_in_question || autograd_sees_write(op, arguments, target_positions[i]);
    const c10::AutoGradMode mode(c10::GradMode::is_enabled() && is_seen);
    if (!is_seen && may_have_tangent) source = with_tangent_of(copy_like(targets[i], source), targets[i]);
    const auto version = targets[i].is_inference() ? 0 : targets[i]._version();
    assign(op, targets[i], source, may_resize);
    const bool is_overwritten = is_in_question && is_seen && level_ == Level::kTop && !is_out;
    if (is_overwritten && op.operator_name().name != "aten::detach_") overwrite_history(targets[i], std::move(edges));
    if (counts_as_write(op, is_out) || targets[i].is_inference()) continue;
    c10::VariableVersion counter = targets[i].unsafeGetTensorImpl()->version_counter();
    counter.set_version(version);
  }
  std::size_t next_fresh = 0;
  std::size_t next_target = 0;
  for (const c10::Argument& result : returns) {
    stack.push_back(is_written_argument(result) ? IValue(targets[next_target++]) : results[next_fresh++]);
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
  if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
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
  if (op.operator_name().name != "aten::detach_") require_writable(target);
  if (!may_resize && source_impl->state()->view && share_memory(source, target)) {
    // `t_`, `squeeze_`: the target becomes another view of its memory; what it was before stays as the parent of views.
    const std::shared_ptr<TraceState> before = impl->state();
    const at::Tensor kept = make_trace_tensor(bridge::type_of(target), before, target.storage());
    if (target.grad_fn() != nullptr) set_gradient_edge(kept, gradient_edge(target));
    for (const std::weak_ptr<TraceState>& weak : before->shown_by) {
      const std::shared_ptr<TraceState> view = weak.lock();
      if (view == nullptr || !view->view->parent.is_same(target)) continue;
      view->view->parent = kept;
      view->view->arguments[0] = kept;
    }
    for (InputMemory& memory : memories_) {
      if (memory.root.is_same(target)) memory.root = kept;
    }
    impl->set_state(source_impl->state());
    impl->set_geometry(source.sizes(), source.strides(), source.storage_offset());
    if (op.operator_name().name == "aten::detach_") {
      forget_history(target);
    } else if (source.requires_grad()) {
      set_gradient_edge(target, gradient_edge(source));
    }
    return;
  }
  if (!source.sizes().equals(target.sizes())) {
    if (!may_resize || impl->state()->view) {
      throw UserError(ErrorKind::kRuntime, op.schema().name() + ": expected a result of shape " +
                                               c10::str(target.sizes()) + ", got " + c10::str(source.sizes()));
    }
    if (target.requires_grad() && (is_input(target) || !source.requires_grad())) {
      refuse(op,
             "expected an out= of the result's shape where it requires grad, got one to be resized; use the "
             "variant that returns its result");
    }
    impl->set_geometry(source.sizes(), source.strides(), 0);
  }
  const bool fits = source.scalar_type() == target.scalar_type() && source.device() == target.device() &&
                    (impl->state()->view || source.strides().equals(target.strides()));
  write(target, fits ? source : copy_like(target, source), c10::GradMode::is_enabled());
  if (!target.is_inference()) impl->bump_version();
}

at::Tensor Recorder::copy_like(const at::Tensor& target, const at::Tensor& given) {
  const auto converted = [&](const at::Tensor& tensor) {
    const bool is_alike =
        !target.is_contiguous() && tensor.is_non_overlapping_and_dense() && has_order_of(tensor, target);
    const auto format = is_alike ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous;
    return call_by_name("aten::_to_copy", "",
                        {tensor, static_cast<std::int64_t>(target.scalar_type()), IValue(), target.device(), false,
                         false, static_cast<std::int64_t>(format)})[0]
        .toTensor();
  };
  // A number becomes a tensor first: `expand` takes none.
  const at::Tensor source = given.unsafeGetTensorImpl()->is_wrapped_number() ? converted(given) : given;
  const at::Tensor expanded = source.sizes().equals(target.sizes())
                                  ? source
                                  : call_by_name("aten::expand", "", {source, target.sizes().vec()})[0].toTensor();
  const bool is_plain = target.is_contiguous() || lies_as(expanded, target);
  if (is_plain || trace_impl(target)->state()->view || source.requires_grad()) return converted(expanded);
  // As `copy` does, for which there is no formula to push tangents forward.
  return call_by_name("thunder::restride", "", {converted(expanded), target.strides().vec()})[0].toTensor();
}

void Recorder::write(const at::Tensor& target, const at::Tensor& source, bool recorded) {
  TraceState& state = *trace_impl(target)->state();
  const ir::ValueId before = state.value;
  ir::ValueId value = value_of(source);
  // Through `detach`: the write is differentiable for who made it, not for what lies below.
  const bool is_hidden = !recorded && c10::GradMode::is_enabled();
  if (is_hidden && source.requires_grad()) value = without_grad(value);
  if (!is_hidden) adopt_history(target, source, recorded);
  if (level_ == Level::kTop && !recorded && target.requires_grad() && (is_hidden || !source.requires_grad())) {
    value = with_gradient_of(value, before);
  }
  if (state.view) {
    const at::Tensor parent = state.view->parent;
    const bool detached = is_detached(*state.view);
    const at::Tensor scattered = scatter_into_parent(target, source);
    // What is recorded as a region may be pushed forward.
    const bool keeps_tangent = detached && adopt != nullptr && !parent.requires_grad() && parent.is_floating_point();
    at::Tensor whole = keeps_tangent ? with_tangent_of(scattered, parent) : scattered;
    if (!trace_impl(parent)->state()->view && !lies_as(whole, parent) && parent.is_non_overlapping_and_dense()) {
      whole = call_by_name("thunder::restride", "", {whole, parent.strides().vec()})[0].toTensor();
    }
    write(parent, whole, recorded && !detached);
  } else {
    if (++state.writes == 1) require_separate_memory(state);
  }
  state.value = value;
  state.writes_seen = root_of(state).writes;
  // Laid out in another way than the view: it is shown anew when it is next read.
  if (state.view && !lies_as(source, target) && !shows_detached(state)) --state.writes_seen;
}

/// `value` with the tangent that `before` may have, by adding `before - detach(before)` where that is a number.
at::Tensor Recorder::with_tangent_of(const at::Tensor& value, const at::Tensor& before) {
  const IValue detached = call_by_name("aten::detach", "", {before})[0];
  const IValue nothing = call_by_name("aten::sub", "Tensor", {before, detached})[0];
  const IValue is_number = call_by_name("aten::eq", "Tensor", {nothing, nothing})[0];
  const IValue tangent = call_by_name("aten::where", "ScalarOther", {is_number, nothing, c10::Scalar(0)})[0];
  const IValue still = call_by_name("aten::detach", "", {value})[0];
  return call_by_name("aten::add", "Tensor", {still, tangent})[0].toTensor();
}

at::Tensor Recorder::scatter_into_parent(const at::Tensor& target, const at::Tensor& source) {
  const ViewOf view = *trace_impl(target)->state()->view;
  auto call = write_through(view, target, source);
  if (!call) {
    refuse(view.op,
           "writing through this view cannot be traced; write to a clone, or use an operation that "
           "returns its result");
  }
  const RecordCall one = [this](const char* name, const char* overload, std::vector<IValue> arguments) {
    return call_by_name(name, overload, std::move(arguments))[0].toTensor();
  };
  at::Tensor parent = view.parent;
  at::Tensor shown = source;
  const bool is_differentiable = c10::GradMode::is_enabled() && (parent.requires_grad() || source.requires_grad());
  const bool is_split = parent.is_complex() && is_differentiable && to_real_parts(*call);
  if (is_split) {
    parent = one("aten::view_as_real", "", {parent});
    shown = one("aten::view_as_real", "", {source});
    // A diagonal comes last.
    const bool of_diagonal = std::string_view(call->name) == "aten::diagonal_scatter";
    if (of_diagonal) shown = one("aten::transpose", "int", {shown, -1, -2});
    call->arguments[0] = parent;
    call->arguments[1] = shown;
  }
  at::Tensor result;
  const bool by_positions = std::string_view(call->name) == "aten::as_strided_scatter";
  if (by_positions && adopt && parent.is_non_overlapping_and_dense()) {
    result = copied_to_positions(one, *call, parent, shown);
  } else if (by_positions && parent.requires_grad() && c10::GradMode::is_enabled()) {
    result = where_shown(one, *call, parent, shown);
  } else {
    result = one(call->name, call->overload, std::move(call->arguments));
  }
  return is_split ? one("aten::view_as_complex", "", {result}) : result;
}

at::Tensor Recorder::refresh(TraceState& state) {
  if (!state.view) return {};
  const std::uint32_t writes = root_of(state).writes;
  if (state.writes_seen == writes) return {};
  state.writes_seen = writes;
  const ViewOf view = *state.view;
  value_of(view.parent);  // it may require grad from now on
  std::vector<IValue> results = view.arguments;
  call_functional(view.op, results, Level::kTop);
  at::Tensor fresh = tensors_of(results).at(view.result);
  state.value = trace_impl(fresh)->state()->value;
  return fresh;
}

}  // namespace thunder::tracer
