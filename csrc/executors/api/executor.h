#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors {

/// A back end: what it can run, and how that is put into a program. Rows are static tables of their folders.
struct Executor {
  const char* name;
  /// Whether this executor runs the symbol.
  bool (*claim)(const ir::BoundSymbol& symbol, const ir::Trace& trace);
  /// Appends the instructions of a symbol that it claimed. Slots are value ids: `lowering.h` has the conversions.
  void (*lower)(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);
};

}  // namespace thunder::executors
