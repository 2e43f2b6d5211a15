#include "tracer/data_dependence.h"

#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/builder.h"
#include "tracer/evaluate.h"
#include "tracer/map_tensors.h"
#include "tracer/numbers.h"
#include "tracer/operators.h"
#include "tracer/symbol_call.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

const ir::Operator* make_check(std::string_view schema) {
  auto* op = new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
  op->effect = true;
  return op;
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

bool looks_at_data(const ir::BoundSymbol& symbol) { return is_check(*symbol.op) || symbol.op == number_operator(); }

const at::Tensor& expected_contents(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return bridge::tensor_of(*trace.context(), symbol.arguments.at(1));
}

bool is_mask(const IValue& index) {
  if (index.isNone() || !index.toTensor().defined()) return false;
  const at::ScalarType dtype = index.toTensor().scalar_type();
  return dtype == at::kBool || dtype == at::kByte;
}

bool has_mask(const IValue& indices) {
  const auto list = indices.toListRef();
  return std::any_of(list.begin(), list.end(), is_mask);
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

}  // namespace thunder::tracer
