#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// A dense tensor that results of a fusion are parts of. All that happens to them is that an operation puts them there
/// (see `Placements`).
struct Whole {
  struct Part {
    std::uint32_t place = 0;  ///< among the results
    std::int64_t offset = 0;  ///< in elements
    std::vector<std::int64_t> strides;
  };
  std::vector<Part> parts;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

/// A contiguous tensor that is a piece of a fusion's result, of which nothing else is read: a `pad` by negative sizes.
struct Cut {
  std::uint32_t place = 0;          ///< of the result
  std::vector<std::int64_t> start;  ///< in the result, by dimension
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

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
