#include "tracer/data_dependence.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/builder.h"
#include "tracer/evaluate.h"
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

const ir::Operator* make_check(std::string_view schema) {
  auto* op = new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
  op->effect = true;
  return op;
}

template <std::size_t size>
bool contains(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool has_mask(const IValue& indices) {
  for (const IValue& index : indices.toListRef()) {
    if (index.isNone() || !index.toTensor().defined()) continue;
    const at::ScalarType dtype = index.toTensor().scalar_type();
    if (dtype == at::kBool || dtype == at::kByte) return true;
  }
  return false;
}

ir::Argument argument_of(const c10::Scalar& number) {
  if (number.isBoolean()) return number.toBool();
  if (number.isIntegral(/*includeBool=*/false)) return number.toLong();
  if (number.isComplex()) return static_cast<std::complex<double>>(number.toComplexDouble());
  return number.toDouble();
}

}  // namespace

const ir::Operator* check_number_operator() {
  static const ir::Operator* const kRow = make_check("prims::check_number(Tensor value, Scalar expected) -> ()");
  return kRow;
}

const ir::Operator* check_shape_operator() {
  static const ir::Operator* const kRow = make_check("prims::check_shape(Tensor value, int[] expected) -> ()");
  return kRow;
}

bool reads_number(const c10::OperatorHandle& op) {
  static constexpr std::string_view kNames[] = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero",
                                                "aten::equal", "aten::allclose"};
  return contains(kNames, op.operator_name().name);
}

bool reads_lengths(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::ctc_loss" && op.operator_name().overload_name == "Tensor";
}

bool shape_follows_data(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  static constexpr std::string_view kNames[] = {"aten::nonzero",    "aten::nonzero_numpy",
                                                "aten::argwhere",   "aten::masked_select",
                                                "aten::_unique",    "aten::_unique2",
                                                "aten::unique_dim", "aten::unique_consecutive",
                                                "aten::bincount",   "aten::unique_dim_consecutive"};
  const c10::OperatorName& name = op.operator_name();
  if (name.name == "aten::index") return has_mask(arguments[1]);
  if (name.name == "aten::where") return arguments.size() == 1;
  if (name.name == "aten::one_hot") return arguments[1].toInt() < 0;
  if (name.name == "aten::repeat_interleave") return name.overload_name != "self_int" && arguments.back().isNone();
  return contains(kNames, name.name);
}

void Recorder::require_data() const {
  if (full_graph) {
    throw UserError(
        ErrorKind::kRuntime,
        "fullgraph=True: expected a program that does not depend on the data of tensors, got one that reads "
        "it (bool(tensor), tensor.item(), a shape that follows from values); take it out, or leave "
        "fullgraph=True out");
  }
  for (const ir::BoundSymbol& symbol : trace_.symbols) {
    if (!symbol.op->effect || symbol.op->style != ir::CallStyle::kTorchOperator) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "the program reads the data of a tensor after " + symbol.op->name +
                        " has updated running statistics; read it before, or outside of the jitted function");
  }
}

void Recorder::add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected) {
  ir::BoundSymbol symbol;
  symbol.op = op;
  symbol.arguments = {ir::Argument(value), std::move(expected)};
  if (locate) symbol.location = locate();
  trace_.add(std::move(symbol));
}

c10::Scalar Recorder::read_number(const at::Tensor& tensor) {
  require_data();
  if (tensor.numel() != 1) {
    throw UserError(ErrorKind::kRuntime,
                    "a Tensor with " + std::to_string(tensor.numel()) + " elements cannot be converted to Scalar");
  }
  const ir::ValueId value = value_of(tensor);
  const c10::Scalar number = realizer().read(trace_, real_inputs_, value);
  add_check(check_number_operator(), value, argument_of(number));
  return number;
}

void Recorder::call_reading_number(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  const std::size_t count = op.schema().arguments().size();
  std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  if (name == "aten::item" || name == "aten::_local_scalar_dense") {
    stack.emplace_back(read_number(arguments[0].toTensor()));
  } else if (name == "aten::is_nonzero") {
    const c10::Scalar number = read_number(arguments[0].toTensor());
    stack.emplace_back(number.isComplex() ? number.toComplexDouble() != 0.0 : number.toDouble() != 0.0);
  } else if (name == "aten::equal" && !arguments[0].toTensor().sizes().equals(arguments[1].toTensor().sizes())) {
    stack.emplace_back(false);
  } else {
    const bool exact = name == "aten::equal";
    const at::Tensor same =
        call_by_name(exact ? "aten::eq" : "aten::isclose", exact ? "Tensor" : "", std::move(arguments))[0].toTensor();
    stack.emplace_back(read_number(call_by_name("aten::all", "", {same})[0].toTensor()).toBool());
  }
}

void Recorder::call_reading_lengths(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  for (const std::size_t position : {2, 3}) {
    const at::Tensor lengths =
        call_by_name("aten::reshape", "", {arguments[position], c10::List<std::int64_t>({-1})})[0].toTensor();
    c10::List<std::int64_t> numbers;
    for (std::int64_t i = 0; i < lengths.numel(); ++i) {
      numbers.push_back(read_number(call_by_name("aten::select", "int", {lengths, 0, i})[0].toTensor()).toLong());
    }
    arguments[position] = std::move(numbers);
  }
  stack.push_back(call_by_name(op.operator_name().name.c_str(), "IntList", std::move(arguments))[0]);
}

ResultTypes Recorder::infer_by_running(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  require_data();
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
