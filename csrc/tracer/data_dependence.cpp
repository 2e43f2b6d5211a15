#include "tracer/data_dependence.h"

#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/builder.h"
#include "tracer/call_builder.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

const ir::Operator* make_check(std::string_view schema) {
  auto* op = new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
  op->effect = true;
  return op;
}

bool has_mask(const IValue& indices) {
  const auto list = indices.toListRef();
  return std::any_of(list.begin(), list.end(), is_mask);
}

}  // namespace

ir::Argument argument_of(const c10::Scalar& number) {
  if (number.isBoolean()) return number.toBool();
  if (number.isIntegral(/*includeBool=*/false)) return number.toLong();
  if (number.isComplex()) return static_cast<std::complex<double>>(number.toComplexDouble());
  return number.toDouble();
}

c10::Scalar scalar_of(const ir::Argument& number) {
  return bridge::to_ivalue(number, *c10::NumberType::get(), {}).toScalar();
}

bool has_gradient(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  bool found = false;
  for (const ir::Argument& result : symbol.results) {
    ir::for_each_value(result, [&](ir::ValueId id) {
      const ir::TensorType* type = trace.tensor_type(id);
      found |= type != nullptr && type->requires_grad;
    });
  }
  return found;
}

std::vector<at::Tensor> run_symbol(const ir::Trace& trace, const ir::BoundSymbol& symbol,
                                   std::span<const at::Tensor> inputs) {
  const auto writer = make_writer(*trace.context(), [&](ir::ValueId id) {
    const auto position = std::find(trace.inputs.begin(), trace.inputs.end(), id) - trace.inputs.begin();
    return IValue(inputs[static_cast<std::size_t>(position)]);
  });
  const c10::OperatorHandle& op = handle_of(*symbol.op);
  torch::jit::Stack stack = arguments_of(symbol, op, writer);
  const c10::AutoGradMode grad_mode(has_gradient(trace, symbol) && c10::GradMode::is_enabled());
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  op.callBoxed(stack);
  return tensors_of(stack);
}

const ir::Operator* check_number_operator() {
  static const ir::Operator* const kRow = make_check("prims::check_number(Scalar value, Scalar expected) -> ()");
  return kRow;
}

const ir::Operator* check_shape_operator() {
  static const ir::Operator* const kRow = make_check("prims::check_shape(Tensor value, int[] expected) -> ()");
  return kRow;
}

const ir::Operator* check_contents_operator() {
  static const ir::Operator* const kRow = make_check("prims::check_contents(Tensor value, object expected) -> ()");
  return kRow;
}

bool is_check(const ir::Operator& op) {
  return &op == check_number_operator() || &op == check_shape_operator() || &op == check_contents_operator();
}

const at::Tensor& expected_contents(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(1).content);
  return *static_cast<const at::Tensor*>(trace.context()->objects.at(object.index).owner.get());
}

bool is_mask(const IValue& index) {
  if (index.isNone() || !index.toTensor().defined()) return false;
  const at::ScalarType dtype = index.toTensor().scalar_type();
  return dtype == at::kBool || dtype == at::kByte;
}

bool writes_by_mask(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  return has_fact(op, Fact::kWritesToIndices) && has_mask(arguments[1]);
}

bool shape_follows_data(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (!has_fact(op, Fact::kShapeFollowsData)) return false;
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name();
    if (name == "indices") return has_mask(arguments[i]);
    if (name == "num_classes") return arguments[i].toInt() < 0;
    if (name == "output_size") return arguments[i].isNone();
  }
  return true;
}

void Recorder::require_data() const {
  if (full_graph) {
    throw UserError(
        ErrorKind::kRuntime,
        "fullgraph=True: expected a program that does not depend on the data of tensors, got one that reads "
        "it (bool(tensor), tensor.item(), a shape that follows from values); take it out, or leave "
        "fullgraph=True out");
  }
}

void Recorder::bring_data_of_inputs() {
  if (!data_of_input) return;
  for (std::size_t i = 0; i < real_inputs_.size(); ++i) {
    if (!real_inputs_[i].defined()) real_inputs_[i] = data_of_input(i);
  }
}

at::Tensor Recorder::data_of(const at::Tensor& trace_tensor) {
  require_data();
  bring_data_of_inputs();
  const ir::ValueId value = value_of(trace_tensor);
  return realizer().value(trace_, real_inputs_, value);
}

void Recorder::repeat_check(const ir::BoundSymbol& check, const at::Tensor& trace_tensor) {
  add_check(check.op, value_of(replace_real_tensor(trace_tensor)), check.arguments[1]);
}

void Recorder::add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected) {
  ir::BoundSymbol symbol;
  symbol.op = op;
  symbol.arguments = {ir::Argument(value), std::move(expected)};
  if (locate) symbol.location = locate();
  add(std::move(symbol));
}

c10::Scalar Recorder::read_number(const at::Tensor& tensor) {
  const Number number = item(tensor);
  meet(number);
  return number.value;
}

bool Recorder::read_truth(const at::Tensor& tensor) {
  const Number number = item(tensor);
  if (number.value.isBoolean() || number.value.isComplex()) {
    meet(number);
    return number.value.isBoolean() ? number.value.toBool() : number.value.toComplexDouble() != 0.0;
  }
  const Number truth = compute("!=", number, c10::Scalar(0)).value();
  meet(truth);
  return truth.value.toBool();
}

at::Tensor Recorder::contents_of(const at::Tensor& tensor) {
  for (const at::Tensor& real : real_constants_) {
    const at::Tensor& constant = constants_by_real_.at(real.unsafeGetTensorImpl());
    if (!constant.is_same(tensor) || is_written(constant)) continue;
    const SuspendRecording suspended;
    return real.detach().clone();
  }
  require_data();
  const ir::ValueId value = value_of(tensor);
  bring_data_of_inputs();
  auto contents = std::make_shared<at::Tensor>(realizer().contents(trace_, real_inputs_, value));
  add_check(check_contents_operator(), value, trace_.context()->add_object(contents, "torch.Tensor"));
  return *contents;
}

void Recorder::call_reading_number(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  const at::Tensor tensor = arguments[0].toTensor();
  const bool is_truth = op.schema().returns()[0].type()->kind() == c10::TypeKind::BoolType;
  if (count == 1) {
    stack.emplace_back(is_truth ? c10::Scalar(read_truth(tensor)) : read_number(tensor));
    return;
  }
  // Whether two tensors are the same, exactly or within what further arguments say.
  const CallBuilder calls(*this);
  const bool is_exact = count == 2;
  if (is_exact && !tensor.sizes().equals(arguments[1].toTensor().sizes())) {
    stack.emplace_back(false);
    return;
  }
  const at::Tensor same = is_exact ? calls.eq(tensor, arguments[1].toTensor()) : calls.isclose(std::move(arguments));
  stack.emplace_back(read_number(calls.all(same)).toBool());
}

ResultTypes Recorder::infer_by_running(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  require_data();
  bring_data_of_inputs();
  std::vector<ir::ValueId> values;
  for (const at::Tensor& tensor : tensors_of(arguments)) values.push_back(value_of(tensor));
  return realizer().infer(trace_, real_inputs_, op, arguments, values);
}

void Recorder::check_shapes(std::span<const IValue> results) {
  for (const at::Tensor& result : tensors_of(results)) {
    const auto sizes = result.sizes();
    add_check(check_shape_operator(), value_of(result), ir::ArgumentList(sizes.begin(), sizes.end()));
  }
}

}  // namespace thunder::tracer
