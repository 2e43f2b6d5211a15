#include "executors/aten/executor.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "executors/api/lowering.h"
#include "executors/aten/work_estimate.h"

namespace thunder::executors::aten {
namespace {

bool claim(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return symbol.op->style == ir::CallStyle::kTorchOperator && symbol.op->handle != nullptr;
}

void lower(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
  const std::vector<c10::Argument>& parameters = op.schema().arguments();
  std::vector<runtime::Operand> operands;
  operands.reserve(parameters.size());
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    operands.push_back(operand_of(symbol.arguments[i], parameters.at(i).real_type(), trace));
  }
  builder.call(op, std::move(operands), result_slots(symbol), location_of(symbol), is_small(symbol, trace));
}

}  // namespace

const Executor kExecutor{"aten", &claim, &lower};

}  // namespace thunder::executors::aten
