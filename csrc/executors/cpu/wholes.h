#pragma once

#include <cstdint>
#include <vector>

#include "fusion/output_placement.h"
#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

using fusion::Cut;
using fusion::Whole;

/// Those of a fused symbol of the trace.
[[nodiscard]] std::vector<Whole> wholes_of(const ir::BoundSymbol& fused, const ir::Trace& trace);
[[nodiscard]] std::vector<Cut> cuts_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

// A `SingleOperation`: the operation that puts them there. Where the fusion computed its parts in the whole, what is
// left to do is the rest of it. And one that cuts: where the fusion computed the piece alone, nothing is left to do.
[[nodiscard]] bool takes_whole(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_whole(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);
[[nodiscard]] bool takes_cut(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_cut(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
