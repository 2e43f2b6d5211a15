#pragma once

#include "passes/pass.h"

namespace thunder::passes {

struct DeadCodeOptions {
  /// Keep random operators that nothing uses: what draws after them gets eager's numbers for the same seed.
  bool preserve_random_stream = true;
};

/// Drops what neither the outputs nor a write nor an effect needs. A comment goes with the values that it names.
[[nodiscard]] ir::Trace eliminate_dead_code(const ir::Trace& trace, const DeadCodeOptions& options = {});

inline constexpr Pass kDeadCodeElimination{
    "dead_code_elimination", [](const ir::Trace& trace, FindOperator) { return eliminate_dead_code(trace); }};

}  // namespace thunder::passes
