#include "tracer/probe.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <optional>

#include "bridge/convert.h"
#include "bridge/random.h"
#include "tracer/map_tensors.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

at::Tensor zeros_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).zero_();
}

/// Random numbers that are drawn are drawn again.
class SameRandomState {
 public:
  SameRandomState() = default;
  ~SameRandomState() { state_.restore(); }
  SameRandomState(const SameRandomState&) = delete;
  SameRandomState& operator=(const SameRandomState&) = delete;

 private:
  bridge::RandomState state_ = bridge::RandomState::now();
};

torch::jit::Stack call_on_zeros(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const SuspendRecording suspended;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const SameRandomState random;
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) {
    // The default generator in the place of the program's: its state is put back.
    stack.push_back(argument.isGenerator() ? IValue() : map_tensors(argument, &zeros_of));
  }
  op.callBoxed(stack);
  return stack;
}

ResultType describe(const at::Tensor& tensor) {
  ResultType result;
  if (tensor.defined()) result.type = ir::make_type(bridge::type_of(tensor));
  return result;
}

/// A tensor like `tensor`, without data or a place in the trace.
IValue without_value(const IValue& value) {
  if (!value.isTensor() || trace_impl(value.toTensor()) == nullptr) return value;
  ir::TensorType type = bridge::type_of(value.toTensor());
  at::Tensor tensor = make_trace_tensor(type, std::make_shared<TraceState>());
  if (type.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

}  // namespace

bool autograd_sees_write(const c10::OperatorHandle& op, std::span<const IValue> arguments, std::size_t written) {
  const EvaluateOnly nothing_recorded;
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) stack.push_back(without_value(argument));
  try {
    at::Tensor target = stack[written].toTensor().set_requires_grad(true).clone();
    const auto node = target.grad_fn();
    stack[written] = target;
    op.callBoxed(stack);
    return target.grad_fn() != node;
  } catch (const std::exception&) {
    return arguments[written].toTensor().requires_grad();  // an error that the write itself raises
  }
}

void raise_as_kernel(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  static_cast<void>(call_on_zeros(op, arguments));
}

ResultTypes infer_by_probe(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  ResultTypes types;
  for (const IValue& value : call_on_zeros(op, arguments)) {
    ResultTypes::Result& result = types.results.emplace_back();
    result.is_list = value.isTensorList();
    result.is_other = !result.is_list && !value.isTensor();
    if (result.is_other) {
      result.other = value;
    } else if (result.is_list) {
      for (const IValue& element : value.toListRef()) result.tensors.push_back(describe(element.toTensor()));
    } else {
      result.tensors.push_back(describe(value.toTensor()));
    }
  }
  return types;
}

}  // namespace thunder::tracer
