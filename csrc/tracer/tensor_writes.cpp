#include "tracer/tensor_writes.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/adopted_gradients.h"
#include "tracer/autograd_history.h"
#include "tracer/call_builder.h"
#include "tracer/evaluate.h"
#include "tracer/input_memory.h"
#include "tracer/map_tensors.h"
#include "tracer/memory_overlap.h"
#include "tracer/operators.h"
#include "tracer/recording.h"
#include "tracer/scatters.h"
#include "tracer/tensor_table.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"
#include "tracer/write_checks.h"

namespace thunder::tracer {
namespace {

using c10::IValue;
using torch::autograd::impl::gradient_edge;
using torch::autograd::impl::set_gradient_edge;

/// Writes of which the memory's version tells nothing.
bool is_hidden_write(const TraceState& state) {
  for (const TraceState* view = &state; view->view; view = trace_impl(view->view->parent)->state().get()) {
    if (view->view->is_data) return true;
  }
  return false;
}

/// A view of what `detach` gave: a write to it has a gradient that the memory has not.
bool shows_detached(const TraceState& state) {
  for (const TraceState* view = &state; view->view; view = trace_impl(view->view->parent)->state().get()) {
    if (is_detached(*view->view)) return true;
  }
  return false;
}

}  // namespace

void TensorWrites::require_detachable(const c10::OperatorHandle& op, const at::Tensor& target) const {
  const ViewOf* view = autograd_view(*trace_impl(target)->state());
  if (view != nullptr && !is_detached(*view)) refuse(op, "a view cannot be detached in place; use detach");
  const bool is_outside = tensors_.is_input(target) && target.requires_grad() && !target.is_leaf();
  if (is_outside) refuse(op, "an input that autograd made is detached in place; use detach");
  const at::Tensor real = tensors_.real_behind(target);
  if (!real.defined()) return;
  tensors_.note_view_asked(real);
  if (real.is_view()) refuse(op, "an input that is a view is detached in place; use detach");
}

void TensorWrites::require_writable(const at::Tensor& target, const at::Tensor& source) const {
  if (!c10::GradMode::is_enabled()) {
    // From then on, eager gives views of a leaf that is a view itself the history of what that shows.
    const bool is_view_of_it = static_cast<bool>(trace_impl(target)->state()->view);
    const at::Tensor root = is_view_of_it ? tensors_.real_behind(root_tensor_of(target)) : at::Tensor();
    if (root.defined() && root.is_view() && root.is_leaf() && root.requires_grad()) {
      throw UserError(ErrorKind::kNotImplemented, "a view of a leaf that is a view is written to under no_grad");
    }
    return;
  }
  const bool is_differentiable =
      target.requires_grad() || source.requires_grad() || requires_grad_by_memory(*trace_impl(target)->state());
  if (is_differentiable && is_closed_to_writes(*trace_impl(target)->state())) {
    throw UserError(ErrorKind::kNotImplemented,
                    "a view that was made under torch.no_grad(), or by an operation with several results, is written "
                    "to with gradients on; write to the tensor that it shows");
  }
  const at::Tensor shown = tensors_.real_behind(root_tensor_of(target));
  if (is_differentiable && shown.defined() && is_closed_outside(shown)) {
    throw UserError(ErrorKind::kNotImplemented,
                    "an input is written to with gradients on that is a view of a leaf, or that was made under "
                    "torch.no_grad() or by an operation with several results");
  }
  if (!target.requires_grad()) return;
  const at::Tensor real = tensors_.real_behind(target);
  const bool is_view = trace_impl(target)->state()->view || (real.defined() && real.is_view());
  TORCH_CHECK(!shows_leaf_of_program(target), is_view ? "a view of a leaf" : "a leaf",
              " Variable that requires grad is being used in an in-place operation.");
}

void TensorWrites::require_open_history(const at::Tensor& tensor) const {
  if (!tensor.requires_grad() && !is_hidden_leaf(tensor)) return;
  TraceState& state = *trace_impl(tensor)->state();
  const std::uint32_t writes = root_of(state).writes;
  if (writes == 0 || (state.view && state.view->writes_before == writes)) return;
  const at::Tensor shown = tensors_.real_behind(root_tensor_of(tensor));
  if (!is_closed_to_writes(state) && !(shown.defined() && is_closed_outside(shown))) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "a view that was made under torch.no_grad(), or by an operation with several results, is used with "
                  "gradients after its memory was written to; make it anew");
}

bool TensorWrites::is_leaf_of_program(const at::Tensor& tensor) const {
  if (recording_.level() != Level::kTop || !tensor.requires_grad() || !tensor.is_leaf()) return false;
  if (!tensors_.is_input(tensor)) return true;
  const at::Tensor real = tensors_.real_behind(tensor);
  return real.defined() && real.is_leaf();
}

bool TensorWrites::shows_leaf_of_program(const at::Tensor& tensor) const {
  if (is_leaf_of_program(tensor)) return true;
  const std::optional<ViewOf>& view = trace_impl(tensor)->state()->view;
  return view && shows_leaf_of_program(view->parent);
}

void TensorWrites::begin_trial() {
  trial_ = Trial{static_cast<std::uint32_t>(recording_.trace().value_count()), false};
}

void TensorWrites::require_turnable(const c10::OperatorHandle& op, const at::Tensor& target) const {
  const at::Tensor real = tensors_.real_behind(target);
  const bool was_resized = real.defined() && !trace_impl(target)->state()->view && real.sizes() != target.sizes();
  if (was_resized) refuse(op, "an input that was resized gets another geometry; use the variant that returns a view");
  const at::Tensor& gradient = target.mutable_grad();  // grad() warns of non-leaves
  if (gradient.defined()) refuse(op, "a tensor with a gradient gets another geometry");
  const auto history = target.grad_fn();
  if (history != nullptr && !history->tensor_pre_hooks().empty())
    refuse(op, "a tensor with hooks gets another geometry; register them on a clone");
}

void TensorWrites::turn(const at::Tensor& target, const at::Tensor& source, bool detaches) {
  TraceTensorImpl* impl = trace_impl(target);
  const std::shared_ptr<TraceState> before = impl->state();
  const at::Tensor kept = make_trace_tensor(bridge::type_of(target), before, target.storage());
  if (target.grad_fn() != nullptr) set_gradient_edge(kept, gradient_edge(target));
  for (const std::weak_ptr<TraceState>& weak : before->shown_by) {
    const std::shared_ptr<TraceState> view = weak.lock();
    if (view == nullptr || !view->view->parent.is_same(target)) continue;
    view->view->parent = kept;
    view->view->arguments[0] = kept;
  }
  memory_.note_turned(target, kept);
  impl->set_state(trace_impl(source)->state());
  impl->state()->view->is_turned = true;
  impl->set_geometry(source.sizes(), source.strides(), source.storage_offset());
  if (detaches) {
    forget_history(target);
  } else if (source.requires_grad()) {
    set_gradient_edge(target, gradient_edge(source));
  }
  if (!detaches && !target.is_inference()) impl->bump_version();
}

void TensorWrites::assign(const c10::OperatorHandle& op, const at::Tensor& target, at::Tensor source, bool may_resize) {
  TraceTensorImpl* impl = trace_impl(target);
  const TraceTensorImpl* source_impl = trace_impl(source);
  const bool is_inference = target.is_inference() || (tensors_.has_inference_inputs() &&
                                                      tensors_.real_behind(root_tensor_of(target)).is_inference());
  if (is_inference && !c10::InferenceMode::is_enabled()) {
    refuse(op, "a tensor made in inference mode is written to outside of it; write to a clone");
  }
  const bool detaches = has_fact(op, Fact::kDetaches);
  if (detaches) {
    if (c10::InferenceMode::is_enabled()) return;  // autograd, whose part it is to detach, is left out there
    require_detachable(op, target);
    // Nothing to do; what is recorded as a part may have a tangent.
    if (!target.requires_grad() && recording_.host.recorded() != Recorded::kPart) return;
  } else {
    require_writable(target, source);
  }
  has_writes_ = true;
  // Nor can eager use what was saved of a tensor that is detached in place.
  if (detaches || is_hidden_write(*impl->state())) ++root_of(*impl->state()).hidden_writes;
  if (!may_resize && source_impl->state()->view && share_memory(source, target)) {
    const bool loses_history = target.requires_grad() && !source.requires_grad();
    if (!detaches && loses_history && recording_.level() == Level::kTop && !c10::GradMode::is_enabled()) {
      refuse(op, "a tensor that requires grad is turned under no_grad; use the operation without an underscore");
    }
    require_turnable(op, target);
    turn(target, source, detaches);
    return;
  }
  if (!source.sizes().equals(target.sizes())) {
    if (!may_resize || impl->state()->view) {
      refuse(op, "expected a result of shape " + c10::str(target.sizes()) + ", got " + c10::str(source.sizes()));
    }
    if (target.requires_grad() && (tensors_.is_input(target) || !source.requires_grad())) {
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

at::Tensor TensorWrites::copy_like(const at::Tensor& target, const at::Tensor& given) {
  const CallBuilder calls(recording_);
  const auto converted = [&](const at::Tensor& tensor) {
    const bool is_alike =
        !target.is_contiguous() && tensor.is_non_overlapping_and_dense() && has_order_of(tensor, target);
    const auto format = is_alike ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous;
    return calls.to(tensor, target, format);
  };
  // A number becomes a tensor first: `expand` takes none.
  const at::Tensor source = given.unsafeGetTensorImpl()->is_wrapped_number() ? converted(given) : given;
  const at::Tensor expanded = source.sizes().equals(target.sizes()) ? source : calls.expand(source, target.sizes());
  const bool is_plain = target.is_contiguous() || lies_as(expanded, target);
  const bool may_have_tangent = recording_.may_have_tangents() && source.requires_grad();
  if (is_plain || trace_impl(target)->state()->view || may_have_tangent) return converted(expanded);
  // As `copy` does, for which there is no formula to push tangents forward.
  return calls.restride(converted(expanded), target.strides());
}

void TensorWrites::write(const at::Tensor& target, const at::Tensor& source, bool recorded) {
  TraceState& state = *trace_impl(target)->state();
  const ir::ValueId before = state.value;
  ir::ValueId value = recording_.value_of(source);
  // Through `detach`: the write is differentiable for who made it, not for what lies below.
  const bool is_hidden = !recorded && c10::GradMode::is_enabled();
  if (is_hidden && source.requires_grad()) value = history_.without_grad(value);
  if (!is_hidden) history_.adopt(target, source, recorded);
  if (recording_.level() == Level::kTop && !recorded && target.requires_grad() &&
      (is_hidden || !source.requires_grad())) {
    value = gradients_.with_gradient_of(value, before);
  }
  if (state.view) {
    const at::Tensor parent = state.view->parent;
    const bool detached = is_detached(*state.view);
    const at::Tensor scattered = scatter_into_parent(target, source);
    const bool keeps_tangent =
        detached && recording_.may_have_tangents() && !parent.requires_grad() && parent.is_floating_point();
    at::Tensor written = keeps_tangent ? with_tangent_of(scattered, parent) : scattered;
    if (!trace_impl(parent)->state()->view && !lies_as(written, parent) && parent.is_non_overlapping_and_dense()) {
      written = CallBuilder(recording_).restride(written, parent.strides());
    }
    write(parent, written, recorded && !detached);
  } else {
    if (recording_.level() == Level::kTop && tensors_.is_input(target) && overlaps_itself(target)) {
      throw UserError(ErrorKind::kNotImplemented,
                      "a part of an input is written to in which several elements lie in the same memory; write to a "
                      "clone");
    }
    trial_.has_written |= index_of(before) < trial_.begin;
    if (++state.writes == 1) memory_.require_separate(state);
    // Each input of the trace has a version counter of its own.
    if (memory_.is_shared(state)) ++state.shared_writes;
  }
  state.value = value;
  state.writes_seen = root_of(state).writes;
  // Laid out in another way than the view: it is shown anew when it is next read.
  if (state.view && !lies_as(source, target) && !shows_detached(state)) --state.writes_seen;
}

at::Tensor TensorWrites::with_tangent_of(const at::Tensor& value, const at::Tensor& before) {
  const CallBuilder calls(recording_);
  const at::Tensor nothing = calls.sub(before, calls.detach(before));
  const at::Tensor tangent = calls.where(calls.eq(nothing, nothing), nothing, c10::Scalar(0));
  return calls.add(calls.detach(value), tangent);
}

at::Tensor TensorWrites::scatter_into_parent(const at::Tensor& target, const at::Tensor& source) {
  const ViewOf view = *trace_impl(target)->state()->view;
  auto call = write_through(view, target, source);
  if (!call) {
    refuse(view.op,
           "writing through this view cannot be traced; write to a clone, or use an operation that "
           "returns its result");
  }
  const CallBuilder calls(recording_);
  at::Tensor parent = view.parent;
  at::Tensor shown = source;
  const bool is_differentiable = c10::GradMode::is_enabled() && (parent.requires_grad() || source.requires_grad());
  const bool is_split = parent.is_complex() && is_differentiable && to_real_parts(*call);
  if (is_split) {
    parent = calls.view_as_real(parent);
    shown = calls.view_as_real(source);
    if (call->has_diagonal_last) shown = calls.transpose(shown, -1, -2);
    call->arguments[0] = parent;
    call->arguments[1] = shown;
  }
  at::Tensor result;
  const bool by_positions = operators::has_fact(*find_operator(call->name, call->overload), Fact::kReadsStrides);
  // PyTorch's derivative of as_strided_scatter reads the positions in a gradient that is contiguous.
  const bool has_derivative = parent.is_contiguous() && parent.storage_offset() == 0;
  const bool is_dense = parent.is_non_overlapping_and_dense();
  if (by_positions && is_differentiable && !has_derivative && !is_dense)
    refuse(view.op, "writing through this view of a part of memory has no derivative; write to a clone");
  if (by_positions && is_dense && (recording_.may_have_tangents() || (is_differentiable && !has_derivative))) {
    result = copied_to_positions(calls, *call, parent, shown);
  } else if (by_positions && parent.requires_grad() && c10::GradMode::is_enabled()) {
    result = where_shown(calls, *call, parent, shown);
  } else {
    result = calls.call(*std::move(call));
  }
  return is_split ? calls.view_as_complex(result) : result;
}

at::Tensor TensorWrites::refresh(TraceState& state) {
  if (!state.view) return {};
  const std::uint32_t writes = root_of(state).writes;
  if (state.writes_seen == writes) return {};
  state.writes_seen = writes;
  const ViewOf view = *state.view;
  // Its history is that of where it was made, and not of where it is looked at again.
  std::optional<c10::InferenceMode> as_made;
  if (!view.inference_mode && c10::InferenceMode::is_enabled()) as_made.emplace(false);
  const c10::AutoGradMode history(view.grad_mode || c10::GradMode::is_enabled());
  recording_.value_of(view.parent);  // it may require grad from now on
  std::vector<IValue> results = view.arguments;
  recording_.call_functional(view.op, results, Level::kTop);
  at::Tensor fresh = tensors_of(results).at(view.result);
  state.value = trace_impl(fresh)->state()->value;
  return fresh;
}

}  // namespace thunder::tracer
