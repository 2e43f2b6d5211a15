#include "executors/aten/executor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <vector>

#include "executors/api/lowering.h"
#include "executors/api/operands.h"
#include "executors/aten/work_estimate.h"
#include "operators/facts.h"

namespace thunder::executors::aten {
namespace {

bool claim(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& /*trace*/) {
  return symbol.op->style == ir::CallStyle::kTorchOperator && symbol.op->handle != nullptr;
}

/// Calls an operator that gives all its results in this mode alone. Nothing else depends on the mode below autograd.
void call_recording(const void* state, std::vector<c10::IValue>& stack) {
  const at::AutoGradMode recording(true);
  static_cast<const c10::OperatorHandle*>(state)->callBoxed(stack);
}

void lower(const Executor& /*self*/, const ir::BoundSymbol& symbol, const ir::Trace& trace,
           runtime::ProgramBuilder& builder) {
  if (operators::has_fact(*symbol.op, operators::Fact::kReadsGradMode)) {
    const auto& op = *static_cast<const c10::OperatorHandle*>(symbol.op->handle);
    builder.call(op, &call_recording, std::make_shared<const c10::OperatorHandle>(op), operands_of(symbol, trace),
                 result_slots(symbol), location_of(symbol));
    return;
  }
  lower_operator(symbol, trace, builder, is_small(symbol, trace));
}

}  // namespace

const Executor kExecutor{"aten", &claim, &lower};

}  // namespace thunder::executors::aten
