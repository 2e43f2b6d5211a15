// Numbers that the program takes out of tensors and hands to tensors again.
#include "tracer/numbers.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "bridge/number.h"
#include "ir/builder.h"
#include "tracer/data_dependence.h"
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

const ir::Operator* make_primitive(std::string_view schema) {
  return new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
}

c10::Scalar value_of_operand(const NumberOperand& operand) {
  const auto* number = std::get_if<Number>(&operand);
  return number == nullptr ? std::get<c10::Scalar>(operand) : number->value;
}

ir::Argument argument_of_operand(const NumberOperand& operand) {
  const auto* number = std::get_if<Number>(&operand);
  return number == nullptr ? argument_of(std::get<c10::Scalar>(operand)) : ir::Argument(number->id);
}

}  // namespace

const ir::Operator* item_operator() {
  static const ir::Operator* const kRow = make_primitive("prims::item(Tensor value) -> Scalar");
  return kRow;
}

const ir::Operator* number_operator() {
  static const ir::Operator* const kRow =
      make_primitive("prims::number(str operation, Scalar left, Scalar right) -> Scalar");
  return kRow;
}

bool is_number(const ir::Trace& trace, ir::ValueId id) {
  return std::holds_alternative<ir::ScalarKind>(*trace.value(id).type);
}

Number Recorder::add_number(const ir::Operator* op, ir::ArgumentList arguments, const c10::Scalar& value) {
  ir::BoundSymbol symbol;
  symbol.op = op;
  symbol.arguments = std::move(arguments);
  if (locate) symbol.location = locate();
  const ir::ValueId id = trace_.add_value(ir::make_type(bridge::kind_of(value)));
  symbol.results.emplace_back(id);
  add(std::move(symbol));
  numbers_[index_of(id)].value = value;
  return {id, value};
}

Number Recorder::item(const at::Tensor& tensor) {
  require_data();
  if (tensor.numel() != 1) {
    throw UserError(ErrorKind::kRuntime,
                    "a Tensor with " + std::to_string(tensor.numel()) + " elements cannot be converted to Scalar");
  }
  const ir::ValueId value = value_of(replace_real_tensor(tensor));
  bring_data_of_inputs();
  const c10::Scalar number = realizer().read(trace_, real_inputs_, value);
  if (is_number(trace_, value)) return {value, number};
  return add_number(item_operator(), {ir::Argument(value)}, number);
}

std::optional<Number> Recorder::compute(std::string_view operation, const NumberOperand& left,
                                        const NumberOperand& right) {
  const auto value = bridge::compute_number(operation, value_of_operand(left), value_of_operand(right));
  if (!value) return std::nullopt;
  return add_number(number_operator(),
                    {ir::Argument(std::string(operation)), argument_of_operand(left), argument_of_operand(right)},
                    *value);
}

void Recorder::meet(const Number& number) { add_check(check_number_operator(), number.id, argument_of(number.value)); }

at::Tensor Recorder::number_tensor(ir::ValueId number) {
  at::Tensor& tensor = numbers_[index_of(number)].tensor;
  if (!tensor.defined()) tensor = make_number_tensor(number, *trace_.value(number).type);
  return tensor;
}

at::Tensor Recorder::adopt_number(const at::Tensor& tensor) {
  const TraceState& state = *trace_impl(tensor)->state();
  const Number number{state.value, state.recorder->numbers_.at(index_of(state.value)).value};
  state.recorder->meet(number);
  at::Tensor constant = c10::scalar_to_tensor(number.value);
  constant.unsafeGetTensorImpl()->set_wrapped_number(true);
  return constant;
}

at::Tensor Recorder::repeat_number(const ir::BoundSymbol& symbol,
                                   const std::function<at::Tensor(ir::ValueId)>& stand_in) {
  if (symbol.op == item_operator()) {
    return number_tensor(item(stand_in(std::get<ir::ValueId>(symbol.arguments[0].content))).id);
  }
  const auto operand = [&](const ir::Argument& argument) -> NumberOperand {
    const auto* id = argument.get<ir::ValueId>();
    if (id == nullptr) return scalar_of(argument);
    const ir::ValueId here = value_of(stand_in(*id));
    return Number{here, numbers_.at(index_of(here)).value};
  };
  const auto number = compute(std::get<std::string>(symbol.arguments[0].content), operand(symbol.arguments[1]),
                              operand(symbol.arguments[2]));
  THUNDER_CHECK(number.has_value(), "tracer", "a number of a trace cannot be computed again");
  return number_tensor(number->id);
}

at::Tensor Recorder::make_number_tensor(ir::ValueId id, const ir::Type& type) {
  auto state = std::make_shared<TraceState>();
  state->recorder = this;
  state->value = id;
  ir::TensorType tensor_type;
  tensor_type.dtype = bridge::from_torch(bridge::dtype_of(std::get<ir::ScalarKind>(type)));
  at::Tensor tensor = make_trace_tensor(tensor_type, std::move(state));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace thunder::tracer
