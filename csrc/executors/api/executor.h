#pragma once

#include <optional>
#include <vector>

#include "executors/api/kernel_text.h"
#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::fusion {
struct Target;
}

namespace thunder::executors {

/// A back end: what it can run, and how that is put into a program. Rows are static tables of their folders, or, where
/// executors are made at run time (`callback/`), live as long as the process.
struct Executor {
  const char* name;
  /// Whether this executor runs the symbol. Needs no Python: passes of several traces ask at once.
  bool (*claim)(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace);
  /// Appends the instructions of a symbol that it claimed. Slots are value ids: `lowering.h` has the conversions.
  void (*lower)(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
                runtime::ProgramBuilder& builder);

  // The functions below change a trace before anything is claimed; null: the executor has no such function.

  /// Whether it has something of its own for an operation of the program, which `expand` then gives.
  bool (*replaces)(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) = nullptr;
  /// The replacement of a symbol that it replaces: a trace from the symbol's distinct values to its results, lists
  /// flattened.
  ir::Trace (*expand)(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) = nullptr;
  /// Rewrites a trace; nullopt: it fuses nothing.
  std::optional<ir::Trace> (*fuse)(const Executor& self, const ir::Trace& trace) = nullptr;
  /// The kernels of one of its blocks, one for each block inside of a batch, as programs that exist have them; null:
  /// its kernels have no source.
  std::vector<KernelText> (*kernels)(const Executor& self, const ir::BoundSymbol& block,
                                     const ir::Trace& trace) = nullptr;
  /// The abilities of its fusions' kernels; null: it has none.
  const fusion::Target* target = nullptr;

  const void* state = nullptr;
};

}  // namespace thunder::executors
