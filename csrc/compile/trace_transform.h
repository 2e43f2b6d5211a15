#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::compile {

/// Where the values lie that a forward trace saves (among its outputs), or that a backward trace takes (its inputs).
struct SavedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A rewrite of traces by the user, at two places of the compilation. Functions may be empty.
struct TraceTransform {
  std::string name;
  /// Gives the computation as it shall be, before it is differentiated. The others are to look at.
  std::function<ir::Trace(const ir::Trace& prologue, const ir::Trace& computation, const ir::Trace& epilogue)>
      pre_prologue;
  /// Gives the computation, forward or backward trace as it shall be, after all passes that change what is computed.
  std::function<ir::Trace(const ir::Trace& trace, SavedRange saved)> post_optimization;
};

/// Both throw UserError, naming the transform and the symbol, when a trace that it made cannot run, or does not take
/// and give what it did.
[[nodiscard]] ir::Trace apply_pre_prologue(const TraceTransform& transform, const ir::Trace& prologue,
                                           const ir::Trace& computation, const ir::Trace& epilogue);
[[nodiscard]] ir::Trace apply_post_optimization(const TraceTransform& transform, const ir::Trace& trace,
                                                SavedRange saved);
/// Forward and backward agree on what is saved.
void require_matching_saved(const TraceTransform& transform, const ir::Trace& forward, SavedRange in_forward,
                            const ir::Trace& backward, SavedRange in_backward);

}  // namespace thunder::compile
