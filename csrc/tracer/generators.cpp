// Random generators that the program makes: each run of the trace makes its own.
#include "ir/trace.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"

namespace thunder::tracer {

void Recorder::call_making_generator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  ir::BoundSymbol symbol;
  symbol.op = operator_for(op);
  symbol.arguments = to_arguments(op, std::span(stack).last(1));
  const ir::ValueId value = trace().add_value(ir::make_type(ir::ObjectType{"torch.Generator"}), "generator");
  symbol.results.emplace_back(value);
  builder.add_here(std::move(symbol));
  const SuspendRecording suspended;
  op.callBoxed(stack);
  generators_.emplace_back(stack.back().toGenerator(), value);
}

std::optional<ir::ValueId> Recorder::find_generator(const c10::IValue& value) const {
  if (!value.isGenerator()) return std::nullopt;
  for (const auto& [generator, id] : generators_) {
    if (generator == value.toGenerator()) return id;
  }
  return std::nullopt;
}

}  // namespace thunder::tracer
