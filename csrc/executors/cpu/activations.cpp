#include "executors/cpu/activations.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "executors/api/operands.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

/// Not `relu`, `hardtanh`, `hardsigmoid` (NaN becomes a number) and `hardswish` (infinite from other numbers on).
struct Row {
  std::string_view op;
  const char* epilogue;
};
constexpr Row kRows[] = {{"aten::gelu", "gelu"},
                         {"aten::leaky_relu", "leaky_relu"},
                         {"aten::sigmoid", "sigmoid"},
                         {"aten::silu", "swish"},
                         {"aten::tanh", "tanh"}};

/// Reads the argument after the tensor; false: oneDNN has no such.
bool read_argument(const c10::IValue& argument, Epilogue& epilogue) {
  if (argument.isString()) {
    epilogue.algorithm = argument.toStringRef();
    return true;
  }
  if (!argument.isScalar()) return false;
  epilogue.numbers.push_back(argument.toScalar());
  return argument.toScalar().toDouble() > 0;  // zero: it is `relu`
}

}  // namespace

Epilogue epilogue_of(const std::optional<Activation>& activation) {
  return activation ? activation->epilogue : Epilogue();
}

void run_apart(const c10::OperatorHandle& op, const std::optional<Activation>& activation,
               std::vector<c10::IValue>& stack) {
  op.callBoxed(stack);
  if (!activation) return;
  stack.insert(stack.end(), activation->arguments.begin(), activation->arguments.end());
  activation->op.callBoxed(stack);
}

std::optional<Activation> activation_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto* row = std::ranges::find(kRows, symbol.op->name, &Row::op);
  if (row == std::end(kRows) || !symbol.op->overload.empty() || symbol.op->handle == nullptr) return std::nullopt;
  const ir::TensorType* from = passes::argument_type(symbol, trace, 0);
  const ir::TensorType* to = passes::result_type(symbol, trace);
  if (from == nullptr || to == nullptr || !passes::same_layout(*from, *to)) return std::nullopt;
  Activation activation{*static_cast<const c10::OperatorHandle*>(symbol.op->handle), {}, {row->epilogue}};
  const auto& parameters = activation.op.schema().arguments();
  for (std::size_t i = 1; i < symbol.arguments.size(); ++i) {
    if (symbol.arguments[i].is<ir::ValueId>()) return std::nullopt;
    activation.arguments.push_back(operand_constant(symbol.arguments[i], parameters[i].real_type(), trace));
    if (!read_argument(activation.arguments.back(), activation.epilogue)) return std::nullopt;
  }
  return activation;
}

}  // namespace thunder::executors::cpu
