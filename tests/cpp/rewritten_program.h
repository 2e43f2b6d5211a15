#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "compile/compiler.h"
#include "compile/execution.h"
#include "recorded_program.h"

namespace thunder::check {

/// How many symbols call the operator of that name.
inline std::size_t count_of(const ir::Trace& trace, const std::string& name) {
  return static_cast<std::size_t>(
      std::ranges::count_if(trace.symbols, [&](const ir::BoundSymbol& symbol) { return symbol.op->name == name; }));
}

/// The results of a trace that a pass rewrote, run operation by operation.
inline Tensors results_of(const ir::Trace& trace, const Tensors& inputs) {
  const runtime::Program program = compile::lower_directly(trace, compile::with_fallback({}));
  Tensors given = inputs;
  Tensors results(program.output_count());
  program.run(std::span(given), std::span(results));
  return results;
}

}  // namespace thunder::check
