#include "executors/api/lowering.h"

#include <utility>

#include "base/error.h"
#include "executors/api/operands.h"
#include "executors/api/primitives.h"
#include "ir/printer.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"

namespace thunder::executors {
namespace {

bool runs_nothing(const ir::Operator& op) {
  return op.style == ir::CallStyle::kComment || op.style == ir::CallStyle::kReturn || is_primitive(op);
}

}  // namespace

Claims claim_trace(const ir::Trace& trace, std::span<const Executor* const> executors) {
  Claims claims;
  claims.of_symbol.reserve(trace.symbols.size());
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    const Executor* claimed = nullptr;
    if (!runs_nothing(*symbol.op)) {
      for (const Executor* executor : executors) {
        if (claimed == nullptr && executor->claim(*executor, symbol, trace)) claimed = executor;
      }
      THUNDER_CHECK(claimed != nullptr, "executors", "no executor claims `" + ir::print(symbol, trace) + "`");
    }
    claims.of_symbol.push_back(claimed);
  }
  return claims;
}

namespace {

/// `lower(i, builder)` appends the instructions of symbol i.
template <typename Lower>
runtime::Program lower_symbols(const ir::Trace& trace, const Lower& lower) {
  runtime::ProgramBuilder builder;
  for (const ir::ValueId input : trace.inputs) builder.add_input(slot_of(input));
  for (const ir::SymbolSource& source : ir::symbol_sources(trace)) {
    builder.add_symbol(source.symbol, slot_of(trace.inputs[source.input]), source.dim);
  }
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) lower(i, builder);
  std::vector<runtime::Operand> outputs;
  for (const ir::Argument& output : trace.outputs) outputs.push_back(operand_of(output, c10::AnyType::get(), trace));
  builder.set_outputs(std::move(outputs));
  return builder.build();
}

}  // namespace

runtime::Program lower_operators(const ir::Trace& trace) {
  return lower_symbols(trace, [&](std::size_t i, runtime::ProgramBuilder& builder) {
    lower_operator(trace.symbols[i], trace, builder);
  });
}

runtime::Program lower_trace(const ir::Trace& trace, const Claims& claims) {
  return lower_symbols(trace, [&](std::size_t i, runtime::ProgramBuilder& builder) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    if (claims.of_symbol[i] != nullptr) {
      claims.of_symbol[i]->lower(*claims.of_symbol[i], symbol, trace, builder);
    } else {
      lower_primitive(symbol, trace, builder);
    }
  });
}

runtime::Program lower_trace(const ir::Trace& trace, std::span<const Executor* const> executors) {
  return lower_trace(trace, claim_trace(trace, executors));
}

}  // namespace thunder::executors
