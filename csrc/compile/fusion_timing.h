#pragma once

#include <optional>

#include "compile/executor_list.h"
#include "ir/trace.h"

namespace thunder::compile {

/// Times of one run, the shortest of several.
struct FusionTiming {
  double seconds = 0;
  double copy_seconds = 0;  ///< time of a copy that moves as many bytes
};

/// Runs a symbol of a trace by itself, on numbers of the traced sizes and strides, in turns with the copy. nullopt: it
/// is not all on the CPU, or none of the executors runs it. Draws nothing from PyTorch's generators.
[[nodiscard]] std::optional<FusionTiming> time_fusion(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                                      const Executors& executors, int rounds);

}  // namespace thunder::compile
