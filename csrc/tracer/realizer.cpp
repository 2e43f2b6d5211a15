#include "tracer/realizer.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "bridge/random.h"
#include "tracer/custom_gradient.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// Real execution: nothing recorded, no gradients, no autocast (its casts are in the trace).
struct RealScope {
  SuspendRecording suspended;
  c10::AutoGradMode no_gradients{false};
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

/// The generator as the trace left it, while alive.
class RandomScope {
 public:
  explicit RandomScope(std::optional<at::Tensor>& state) : state_(state), outside_(bridge::random_state()) {
    if (state_) bridge::set_random_state(*state_);
  }
  ~RandomScope() {
    state_ = bridge::random_state();
    bridge::set_random_state(outside_);
  }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  std::optional<at::Tensor>& state_;
  at::Tensor outside_;
};

IValue with_real_tensors(const IValue& value, std::span<const at::Tensor> reals, std::size_t& next) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(reals[next++]) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (std::size_t i = 0; i < value.toListRef().size(); ++i) list.push_back(reals[next++]);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& element : value.toListRef()) {
      const bool present = !element.isNone() && element.toTensor().defined();
      list.push_back(present ? std::make_optional(reals[next++]) : std::nullopt);
    }
    return list;
  }
  return value;
}

ResultType describe(const at::Tensor& real, bool requires_grad) {
  ir::TensorType type = bridge::type_of(real);
  type.requires_grad = requires_grad && (ir::is_floating_point(type.dtype) || ir::is_complex(type.dtype));
  return {ir::make_type(std::move(type)), -1, -1};
}

}  // namespace

void Realizer::store(const ir::Argument& result, const IValue& value) {
  if (const auto* id = result.get<ir::ValueId>()) {
    values_[index_of(*id)] = value;
  } else if (const auto* list = result.get<ir::ArgumentList>()) {
    const auto elements = value.toListRef();
    for (std::size_t i = 0; i < list->size(); ++i) store((*list)[i], elements[i]);
  }
}

void Realizer::run(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const auto object = [&](const ir::Argument& argument) {
    return trace.context()->objects.at(std::get<ir::ObjectConstant>(argument.content).index).owner.get();
  };
  if (symbol.op == tensor_constant_operator()) {
    store(symbol.results[0], *static_cast<const at::Tensor*>(object(symbol.arguments[0])));
    return;
  }
  if (symbol.op == custom_gradient_operator()) {
    store(symbol.results[0], values_[index_of(std::get<ir::ValueId>(symbol.arguments[0].content))]);
    return;
  }
  if (symbol.op->style != ir::CallStyle::kTorchOperator) return;
  const bridge::ArgumentWriter writer{
      [&](ir::ValueId id) {
        const IValue& value = values_[index_of(id)];
        // Running statistics, which the operation updates though nothing in its schema says so.
        return symbol.op->effect && value.isTensor() ? IValue(value.toTensor().clone()) : value;
      },
      [&](ir::ObjectConstant constant) {
        return *static_cast<const IValue*>(trace.context()->objects.at(constant.index).owner.get());
      }};
  const c10::OperatorHandle& op = handle_of(*symbol.op);
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    stack.push_back(bridge::to_ivalue(symbol.arguments[i], *op.schema().arguments()[i].real_type(), writer));
  }
  op.callBoxed(stack);
  for (std::size_t i = 0; i < symbol.results.size(); ++i) store(symbol.results[i], stack[i]);
}

void Realizer::advance(const ir::Trace& trace, std::span<const at::Tensor> inputs) {
  values_.resize(trace.value_count());
  const RandomScope random(random_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    THUNDER_CHECK(inputs[i].defined(), "tracer", "the data of an input without data");
    values_[index_of(trace.inputs[i])] = inputs[i].detach();
  }
  for (; done_ < trace.symbols.size(); ++done_) run(trace, trace.symbols[done_]);
}

c10::Scalar Realizer::read(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value) {
  const RealScope real;
  advance(trace, inputs);
  return values_[index_of(value)].toTensor().item();
}

ResultTypes Realizer::infer(const ir::Trace& trace, std::span<const at::Tensor> inputs, const c10::OperatorHandle& op,
                            std::span<const IValue> arguments, std::span<const ir::ValueId> values) {
  const bool differentiable = c10::GradMode::is_enabled();
  bool requires_grad = false;
  for (const at::Tensor& tensor : tensors_of(arguments)) requires_grad |= differentiable && tensor.requires_grad();
  const RealScope real;
  advance(trace, inputs);
  std::vector<at::Tensor> reals;
  for (ir::ValueId value : values) reals.push_back(values_[index_of(value)].toTensor());
  std::size_t next = 0;
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) stack.push_back(with_real_tensors(argument, reals, next));
  op.callBoxed(stack);
  ResultTypes types;
  for (const IValue& result : stack) {
    ResultTypes::Result& described = types.results.emplace_back();
    described.is_list = result.isTensorList();
    for (const at::Tensor& tensor : tensors_of({&result, 1})) {
      described.tensors.push_back(describe(tensor, requires_grad));
    }
  }
  return types;
}

}  // namespace thunder::tracer
