#include "executors/aten/executor.h"

#include "executors/api/lowering.h"
#include "executors/api/operands.h"
#include "executors/aten/work_estimate.h"

namespace thunder::executors::aten {
namespace {

bool claim(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return symbol.op->style == ir::CallStyle::kTorchOperator && symbol.op->handle != nullptr;
}

void lower(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  lower_operator(symbol, trace, builder, is_small(symbol, trace));
}

}  // namespace

const Executor kExecutor{"aten", &claim, &lower};

}  // namespace thunder::executors::aten
