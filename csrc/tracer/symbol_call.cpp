#include "tracer/symbol_call.h"

#include <utility>

#include "bridge/constant.h"

namespace thunder::tracer {

bridge::ArgumentWriter make_writer(const ir::TraceContext& context, std::function<c10::IValue(ir::ValueId)> value) {
  return {std::move(value), [&context](ir::ObjectConstant object) { return bridge::value_of(context, object); }};
}

torch::jit::Stack arguments_of(const ir::BoundSymbol& symbol, const c10::OperatorHandle& op,
                               const bridge::ArgumentWriter& writer) {
  torch::jit::Stack stack;
  stack.reserve(symbol.arguments.size());
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    stack.push_back(bridge::to_ivalue(symbol.arguments[i], *op.schema().arguments()[i].real_type(), writer));
  }
  return stack;
}

}  // namespace thunder::tracer
