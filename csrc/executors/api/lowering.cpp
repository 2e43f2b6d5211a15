#include "executors/api/lowering.h"

#include <algorithm>
#include <memory>
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

/// The program reads the symbols of its inputs' sizes, and checks what else the trace says of these. Sizes without
/// symbols that a backward or a later segment takes are what kernels before it gave, and those of some (the workspace
/// of an LSTM) are not what their meta kernels say; those of a call's arguments are guarded.
void add_sizes(const ir::Trace& trace, runtime::ProgramBuilder& builder) {
  const bool takes_results = trace.kind() == ir::TraceKind::kBackward || trace.segment() > 0;
  const std::vector<ir::SymbolSource> sources = ir::symbol_sources(trace);
  for (const auto& [symbol, input, dim, factor] : sources) {
    builder.add_symbol(symbol, slot_of(trace.inputs[input]), dim, factor);
  }
  for (std::uint32_t i = 0; !sources.empty() && i < trace.inputs.size(); ++i) {
    const ir::TensorType* type = trace.tensor_type(trace.inputs[i]);
    for (std::uint32_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      const auto is_source = [&](const ir::SymbolSource& source) { return source.input == i && source.dim == d; };
      if (std::ranges::any_of(sources, is_source)) continue;
      if (takes_results && type->sizes[d].is_concrete()) continue;
      builder.add_size(slot_of(trace.inputs[i]), d, size_operand(type->sizes[d]));
    }
  }
  for (const ir::Condition& condition : trace.conditions) {
    const auto compute = [](const void* state, ir::SymbolValues symbols) {
      return std::int64_t{ir::holds(*static_cast<const ir::Condition*>(state), symbols)};
    };
    std::vector<std::uint32_t> symbols;
    ir::add_symbols(condition, symbols);
    builder.add_condition({compute, std::make_shared<const ir::Condition>(condition), std::move(symbols)},
                          to_string(condition));
  }
}

/// `lower(i, builder)` appends the instructions of symbol i.
template <typename Lower>
runtime::Program lower_symbols(const ir::Trace& trace, const Lower& lower, bool waits = false) {
  runtime::ProgramBuilder builder(waits);
  for (const ir::ValueId input : trace.inputs) builder.add_input(slot_of(input));
  add_sizes(trace, builder);
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) lower(i, builder);
  std::vector<runtime::Operand> outputs;
  for (const ir::Argument& output : trace.outputs) outputs.push_back(operand_of(output, c10::AnyType::get(), trace));
  builder.set_outputs(std::move(outputs));
  runtime::Program program = builder.build();
  if (waits) program.wait();
  return program;
}

}  // namespace

runtime::Program lower_operators(const ir::Trace& trace) {
  return lower_symbols(trace, [&](std::size_t i, runtime::ProgramBuilder& builder) {
    lower_operator(trace.symbols[i], trace, builder);
  });
}

runtime::Program lower_trace(const ir::Trace& trace, const Claims& claims, bool waits) {
  const auto lower = [&](std::size_t i, runtime::ProgramBuilder& builder) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    if (claims.of_symbol[i] != nullptr) {
      claims.of_symbol[i]->lower(*claims.of_symbol[i], symbol, trace, builder);
    } else {
      lower_primitive(symbol, trace, builder);
    }
  };
  return lower_symbols(trace, lower, waits);
}

runtime::Program lower_trace(const ir::Trace& trace, std::span<const Executor* const> executors, bool waits) {
  return lower_trace(trace, claim_trace(trace, executors), waits);
}

}  // namespace thunder::executors
