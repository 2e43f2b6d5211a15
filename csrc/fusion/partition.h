#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fusion/iteration_space.h"
#include "ir/trace.h"
#include "passes/symbol_order.h"

namespace thunder::fusion {

/// How a symbol can be fused.
struct FusionRole {
  enum class Kind : std::uint8_t {
    kNone,  ///< stays as it is
    kWork,  ///< reads its arguments as they broadcast to the value whose elements it goes over
    kView,  ///< gives the elements of its argument, in their order, under other sizes: nothing to do
  };
  /// The elements that a result has: one for each of the space, one for each row, or some known only when all rows are
  /// done.
  enum class Result : std::uint8_t { kElements, kRows, kEnd };

  Kind kind = Kind::kNone;
  ir::ValueId over = ir::kNoValue;  ///< the value whose elements it goes over
  ir::Dim rows = 0;                 ///< rows of that value, where it reduces; 0: it does not (see IterationSpace)
  std::vector<Result> results;      ///< lists flattened
  std::uint32_t by_rows = 0;        ///< a bit for each argument that has one element for a row, from the first dim on
  double work = 1;                  ///< per element; an addition is 1, a view 0
  std::uint32_t by_channels = 0;    ///< a bit for each argument that has one element for each index of dim 1
  std::uint32_t gathered = 0;       ///< a bit for each argument of which it chooses elements by what another one holds
  ir::Dim before = 1;               ///< elements of that value that stand before the rows
  ir::Dim blocks = 1;               ///< blocks of rows: it reduces each to a row, known at the end
  ir::Dim interleaved = 1;          ///< see IterationSpace
};

/// The cost model of fusion: which symbols can be fused, and when it pays.
struct FusionModel {
  std::function<FusionRole(const ir::BoundSymbol& symbol, const ir::Trace& trace)> role;
  double least_work = 2;               ///< sum over all symbols of a fusion
  std::int64_t least_alone = 1 << 14;  ///< elements for which one symbol that works is worth a fusion
  std::int64_t largest_row = 1 << 18;  ///< elements that may have to stay in a cache
  std::size_t most_symbols = 64;
  std::size_t most_tensors = 24;  ///< read or written
};

/// Symbols that become one, by their position in the trace, ascending.
struct FusionGroup {
  std::vector<std::size_t> symbols;
  IterationSpace space;
};

/// Groups of symbols such that each can run at one place of the trace. Greedy: along the values that symbols pass to
/// one another, then of groups that read the same values. Symbols that write, draw random numbers or have an effect
/// stay outside, as do symbols that use memory that is written to, unless they read the result of the last write to the
/// trace's own memory; nothing moves across a write to memory of the caller, or across communication.
[[nodiscard]] std::vector<FusionGroup> partition(const ir::Trace& trace, const passes::SymbolOrder& order,
                                                 const FusionModel& model);

inline constexpr const char* kFusionPartition = "fusion_partition";

}  // namespace thunder::fusion
