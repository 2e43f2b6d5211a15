#include "tracer/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/call_builder.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"
#include "tracer/views.h"

namespace thunder::tracer {

NumberSettings NumberSettings::now() {
  return {c10::get_default_dtype(), at::globalContext().deterministicAlgorithms()};
}

Recorder::Recorder(ir::Trace trace, RecordingHost& starter)
    : Recording(std::move(trace), starter),
      settings(recorder_on_top() == nullptr ? NumberSettings::now() : recorder_on_top()->settings) {}

Recorder* recorder_on_top() { return static_cast<Recorder*>(TraceSession::current().top); }
Recorder* recorder_at_bottom() { return static_cast<Recorder*>(TraceSession::current().bottom); }

void Recorder::add_kept_tensors(std::vector<WeakTensor>& kept) const {
  live.add_kept(kept);
  for (const std::shared_ptr<Recorder>& part : parts_) part->add_kept_tensors(kept);
}

at::Tensor Recorder::add_input(ir::TypePtr type, std::string name) {
  at::Tensor tensor = tensors.add_input(std::move(type), std::move(name));
  memory.add(tensor);
  return tensor;
}

at::Tensor Recorder::add_input(const at::Tensor& real, std::string name) {
  return add_input(real, ir::make_type(bridge::type_of(real)), std::move(name));
}

at::Tensor Recorder::add_input(const at::Tensor& real, ir::TypePtr seen, std::string name) {
  if (auto known = tensors.find_input(real)) return *known;
  at::Tensor tensor = tensors.add_input(real, std::move(seen), std::move(name));
  memory.add(tensor);
  memory.lay_into_storage(real, tensor);
  if (real.is_conj() || real.is_neg()) {
    const std::shared_ptr<TraceState> state = trace_impl(tensor)->state();
    state->value = value_of(CallBuilder(*this).clone(tensor));
  }
  return tensor;
}

at::Tensor Recorder::trace_tensor_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const TraceTensorImpl* impl = trace_impl(tensor);
  const bool is_captured = host.recorded() == Recorded::kPart && (impl == nullptr || impl->state()->recorder != this);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return is_captured && impl != nullptr ? impl->state()->recorder->constant_of(impl->state()->value) : tensor;
  }
  if (is_captured) return host.capture(tensor);
  if (impl != nullptr) return tensor;
  if (auto input = tensors.find_input(tensor)) return *input;
  if (auto known = tensors.find_constant(tensor)) return *known;
  if (level() == Level::kTop && tensor.requires_grad()) {
    // Its gradient would be lost: a constant has none.
    throw UserError(ErrorKind::kNotImplemented,
                    "a tensor from outside that requires grad is used by code which is not looked into");
  }
  const SuspendRecording suspended;
  at::Tensor constant = tensors.add_constant(tensor);
  if (has_foreign_memory(tensor)) arrays.add(tensor, constant);
  return constant;
}

ir::ValueId Recorder::value_of(const at::Tensor& trace_tensor) {
  TraceTensorImpl* impl = trace_impl(trace_tensor);
  THUNDER_CHECK(impl != nullptr, "tracer", "expected a trace tensor");
  require_living({&trace_tensor, 1});
  TraceState& state = *impl->state();
  if (state.recorder != this) {
    throw UserError(ErrorKind::kRuntime,
                    "a tensor of another trace was used; it was kept from an earlier call of a jitted function that "
                    "was interrupted while it was traced, or it left a function that thunder.vmap, grad, vjp or jvp "
                    "transforms in another way than by being returned");
  }
  const bool is_top = level() == Level::kTop;
  if (is_top && c10::GradMode::is_enabled()) writes.require_open_history(trace_tensor);
  if (is_top) gradients.adopt(trace_tensor);
  if (const at::Tensor fresh = writes.refresh(state); fresh.defined() && fresh.requires_grad()) {
    torch::autograd::impl::set_gradient_edge(trace_tensor, torch::autograd::impl::gradient_edge(fresh));
  }
  if (is_top) history.mark_leaf(trace_tensor);
  const ir::TensorType* type = trace().tensor_type(state.value);
  const bool stopped =
      is_top && !trace_tensor.requires_grad() && type != nullptr && type->requires_grad && c10::GradMode::is_enabled();
  return stopped ? history.without_grad(state.value) : state.value;
}

namespace {

/// Lets a view, and those that it lies in, be recorded anew when it is next read: after a write through it, it stands
/// for what was written, in memory of its own. A write through `detach` has a gradient that the memory has not.
void forget_written_value(TraceState& state) {
  const std::uint32_t writes = root_of(state).writes;
  if (writes == 0) return;
  std::vector<TraceState*> views;
  for (TraceState* view = &state; view->view; view = trace_impl(view->view->parent)->state().get()) {
    if (is_detached(*view->view)) return;
    views.push_back(view);
  }
  for (TraceState* view : views) view->writes_seen = writes - 1;
}

/// A tensor that the caller puts hooks on must be the very value that goes on.
bool is_made_apart(const TraceBuilder& builder, ir::ValueId value) {
  const std::size_t place = builder.maker_of(value);
  return place < builder.trace().symbols.size() && stands_alone(*builder.trace().symbols[place].op);
}

}  // namespace

ir::ValueId Recorder::output_of(const at::Tensor& trace_tensor) {
  THUNDER_CHECK(trace_impl(trace_tensor) != nullptr, "tracer", "expected a trace tensor");
  if (!trace_tensor.requires_grad()) forget_written_value(*trace_impl(trace_tensor)->state());
  arrays.note_returned(trace_tensor);
  if (tensors.lies_in_constant(trace_tensor)) return value_of(CallBuilder(*this).clone(trace_tensor));
  const ir::ValueId value = value_of(trace_tensor);
  if (!builder.has_any(Fact::kHasNoMemory) || is_made_apart(builder, value)) return value;
  return value_of(with_recorded_strides(trace_tensor));
}

ir::ValueId Recorder::viewed_output_of(const at::Tensor& trace_tensor) {
  const ir::ValueId value = output_of(trace_tensor);
  const bool is_clone = tensors.lies_in_constant(trace_tensor);
  const bool may_lie_otherwise = builder.has_any(Fact::kOtherStrides | Fact::kMayConjugate);
  return may_lie_otherwise && !is_clone ? value_of(with_recorded_strides(trace_tensor)) : value;
}

at::Tensor Recorder::with_recorded_strides(const at::Tensor& tensor) {
  const TraceState& state = *trace_impl(tensor)->state();
  const bool is_exact = level() == Level::kTop && tensors.is_input(tensor) && state.writes == 0;
  if (is_exact || (state.view && state.view->op.operator_name().name == "thunder::restride")) return tensor;
  // The program may have left gradients switched off.
  const c10::AutoGradMode history(tensor.requires_grad() || c10::GradMode::is_enabled());
  return CallBuilder(*this).restride(tensor, tensor.strides());
}

ir::Trace Recorder::finish(ir::ArgumentList outputs) {
  builder.settle();
  memory.copy_written();
  if (level() == Level::kTop) memory.set_turned_geometry();
  return builder.finish(std::move(outputs));
}

}  // namespace thunder::tracer
