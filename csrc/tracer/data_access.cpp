#include "tracer/data_access.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "bridge/number.h"
#include "tracer/data_dependence.h"
#include "tracer/map_tensors.h"
#include "tracer/recording.h"
#include "tracer/recording_scopes.h"
#include "tracer/tensor_table.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

c10::Scalar value_of_operand(const NumberOperand& operand) {
  if (const auto* number = std::get_if<Number>(&operand)) return number->value;
  const auto* size = std::get_if<ir::Dim>(&operand);
  return size == nullptr ? std::get<c10::Scalar>(operand) : c10::Scalar(size->hint);
}

ir::Argument argument_of_operand(const NumberOperand& operand) {
  const auto* number = std::get_if<Number>(&operand);
  return number == nullptr ? argument_of(value_of_operand(operand)) : ir::Argument(number->id);
}

}  // namespace

void DataAccess::require_data() const {
  if (full_graph) {
    throw UserError(
        ErrorKind::kRuntime,
        "fullgraph=True: expected a program that does not depend on the data of tensors, got one that reads "
        "it (bool(tensor), tensor.item(), a shape that follows from values); take it out, or leave "
        "fullgraph=True out");
  }
}

Realizer& DataAccess::realizer() {
  const Recorded recorded = recording_.host.recorded();
  const bool is_inside = recorded == Recorded::kPart || recorded == Recorded::kTransformed;
  for (std::size_t i = 0; is_inside && i < tensors_.real_inputs().size(); ++i) {
    if (tensors_.real_inputs()[i].defined()) continue;
    tensors_.set_real_input(i, recording_.host.data_of_input(i));
  }
  recording_.builder.settle();
  if (realizer_ == nullptr || edits_ != recording_.builder.edits()) {
    const bool is_program = recorded == Recorded::kProgram;
    const std::span<const at::Tensor> computed = TraceSession::current().computed;
    realizer_ = std::make_unique<Realizer>(replaced_inputs, is_program ? computed : std::span<const at::Tensor>());
  }
  edits_ = recording_.builder.edits();
  return *realizer_;
}

at::Tensor DataAccess::data_of(const at::Tensor& trace_tensor) {
  require_data();
  const ir::ValueId value = recording_.value_of(trace_tensor);
  return realizer().value(recording_.trace(), tensors_.real_inputs(), value);
}

void DataAccess::repeat_check(const ir::BoundSymbol& check, const at::Tensor& trace_tensor) {
  add_check(check.op, recording_.value_of(recording_.trace_tensor_of(trace_tensor)), check.arguments[1]);
}

void DataAccess::add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected) {
  ir::BoundSymbol symbol;
  symbol.op = op;
  symbol.arguments = {ir::Argument(value), std::move(expected)};
  recording_.builder.add_here(std::move(symbol));
}

c10::Scalar DataAccess::read_number(const at::Tensor& tensor) {
  const Number number = item(tensor);
  observe(number);
  return number.value;
}

bool DataAccess::read_truth(const at::Tensor& tensor) {
  const Number number = item(tensor);
  if (number.value.isBoolean() || number.value.isComplex()) {
    observe(number);
    return number.value.isBoolean() ? number.value.toBool() : number.value.toComplexDouble() != 0.0;
  }
  const Number truth = compute("!=", number, c10::Scalar(0)).value();
  observe(truth);
  return truth.value.toBool();
}

at::Tensor DataAccess::contents_of(const at::Tensor& tensor) {
  if (const at::Tensor real = tensors_.real_constant(tensor); real.defined() && !is_written(tensor)) {
    const SuspendRecording suspended;
    return real.detach().clone();
  }
  require_data();
  const ir::ValueId value = recording_.value_of(tensor);
  at::Tensor contents =
      look_elsewhere ? look_elsewhere() : realizer().contents(recording_.trace(), tensors_.real_inputs(), value);
  contents_read_.push_back(contents);
  add_check(check_contents_operator(), value, bridge::add_tensor(*recording_.trace().context(), contents));
  return contents;
}

ResultTypes DataAccess::infer_by_running(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (infer_elsewhere) return infer_elsewhere(op, arguments);
  require_data();
  std::vector<ir::ValueId> values;
  for (const at::Tensor& tensor : tensors_of(arguments)) values.push_back(recording_.value_of(tensor));
  ResultTypes types = realizer().infer(recording_.trace(), tensors_.real_inputs(), op, arguments, values);
  data_sized_.push_back(describe_data_sized(op, arguments, types));
  data_sized_.back().location = recording_.builder.location();
  return types;
}

std::vector<at::Tensor> DataAccess::positions_of(const at::Tensor& mask) {
  std::vector<at::Tensor>& known = positions_[index_of(recording_.value_of(mask))];
  // Positions that a part of the program made are not known outside of it.
  const auto is_known = [&](const at::Tensor& positions) {
    const ir::ValueId value = recording_.value_of(positions);
    return positions.is_inference() == c10::InferenceMode::is_enabled() &&
           recording_.builder.maker_of(value) < recording_.trace().symbols.size();
  };
  if (!known.empty() && std::ranges::all_of(known, is_known)) return known;
  known.clear();
  const IValue places = recording_.call_by_name("aten::nonzero", "", {mask})[0];
  for (std::int64_t i = 0; i < mask.dim(); ++i) {
    known.push_back(recording_.call_by_name("aten::select", "int", {places, std::int64_t{1}, i})[0].toTensor());
  }
  return known;
}

void DataAccess::check_shapes(std::span<const IValue> results) {
  for (const at::Tensor& result : tensors_of(results)) {
    const auto sizes = result.sizes();
    add_check(check_shape_operator(), recording_.value_of(result), ir::ArgumentList(sizes.begin(), sizes.end()));
  }
}

IValue DataAccess::with_contents(const IValue& argument) {
  if (!argument.isTensor() || !is_trace_tensor(argument.toTensor())) return argument;
  const at::Tensor& tensor = argument.toTensor();
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ? contents_of(tensor) : tensor;
}

Number DataAccess::add_number(const ir::Operator* op, ir::ArgumentList arguments, const c10::Scalar& value) {
  ir::BoundSymbol symbol;
  symbol.op = op;
  symbol.arguments = std::move(arguments);
  const ir::ValueId id = recording_.trace().add_value(ir::make_type(bridge::kind_of(value)));
  symbol.results.emplace_back(id);
  recording_.builder.add_here(std::move(symbol));
  numbers_[index_of(id)] = {value, {}, bridge::dtype_of(bridge::kind_of(value))};
  return {id, value};
}

Number DataAccess::item(const at::Tensor& tensor) {
  require_data();
  if (tensor.numel() != 1) {
    throw UserError(ErrorKind::kRuntime,
                    "a Tensor with " + std::to_string(tensor.numel()) + " elements cannot be converted to Scalar");
  }
  const ir::ValueId value = recording_.value_of(recording_.trace_tensor_of(tensor));
  const c10::Scalar number =
      read_elsewhere ? read_elsewhere() : realizer().read(recording_.trace(), tensors_.real_inputs(), value);
  numbers_read_.push_back(number);
  if (is_number(recording_.trace(), value)) return {value, number};
  const Number result = add_number(item_operator(), {ir::Argument(value)}, number);
  numbers_[index_of(result.id)].among = tensor.scalar_type();
  return result;
}

Number DataAccess::given(const at::Tensor& input, const c10::Scalar& number) {
  const Number result = add_number(item_operator(), {ir::Argument(recording_.value_of(input))}, number);
  numbers_[index_of(result.id)].among = input.scalar_type();
  return result;
}

std::optional<Number> DataAccess::compute(std::string_view operation, const NumberOperand& left,
                                          const NumberOperand& right) {
  const auto value = bridge::compute_number(operation, value_of_operand(left), value_of_operand(right));
  if (!value) return std::nullopt;
  return add_number(number_operator(),
                    {ir::Argument(std::string(operation)), argument_of_operand(left), argument_of_operand(right)},
                    *value);
}

void DataAccess::require_known(const NumberOperand& operand) const {
  if (const Number* number = std::get_if<Number>(&operand)) static_cast<void>(numbers_.at(index_of(number->id)));
}

void DataAccess::observe(const Number& number) {
  add_check(check_number_operator(), number.id, argument_of(number.value));
}

at::Tensor DataAccess::number_tensor(ir::ValueId number) {
  at::Tensor& tensor = numbers_.at(index_of(number)).tensor;
  if (!tensor.defined()) tensor = tensors_.make(number);
  return tensor;
}

at::Tensor DataAccess::checked_number(const at::Tensor& tensor, std::string_view check) {
  const auto found = numbers_.find(index_of(recording_.value_of(tensor)));
  if (found == numbers_.end()) return tensor;
  const Number number{ir::ValueId(found->first), found->second.value};
  const auto checked = compute(check, number, number);
  return checked ? number_tensor(checked->id) : at::Tensor();
}

at::Tensor DataAccess::held_number(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto found = numbers_.find(index_of(recording_.value_of(tensor)));
  if (found == numbers_.end() || bridge::can_hold_all(dtype, found->second.among)) return tensor;
  at::Tensor held = checked_number(tensor, ir::torch_name(bridge::from_torch(c10::toRealValueType(dtype))));
  if (held.defined()) numbers_[index_of(recording_.value_of(held))].among = dtype;
  return held;
}

at::Tensor DataAccess::natural_number(const at::Tensor& tensor) { return checked_number(tensor, "natural"); }

at::Tensor DataAccess::constant_of(ir::ValueId value) {
  const Number number{value, numbers_.at(index_of(value)).value};
  observe(number);
  at::Tensor constant = c10::scalar_to_tensor(number.value);
  constant.unsafeGetTensorImpl()->set_wrapped_number(true);
  return constant;
}

at::Tensor DataAccess::repeat_number(const ir::BoundSymbol& symbol,
                                     const std::function<at::Tensor(ir::ValueId)>& trace_tensor_of) {
  if (symbol.op == item_operator()) {
    return number_tensor(item(trace_tensor_of(std::get<ir::ValueId>(symbol.arguments[0].content))).id);
  }
  const auto operand = [&](const ir::Argument& argument) -> NumberOperand {
    const auto* id = argument.get<ir::ValueId>();
    if (id == nullptr) return scalar_of(argument);
    const ir::ValueId here = recording_.value_of(trace_tensor_of(*id));
    return Number{here, numbers_.at(index_of(here)).value};
  };
  const auto number = compute(std::get<std::string>(symbol.arguments[0].content), operand(symbol.arguments[1]),
                              operand(symbol.arguments[2]));
  THUNDER_CHECK(number.has_value(), "tracer", "a number of a trace cannot be computed again");
  return number_tensor(number->id);
}

}  // namespace thunder::tracer
