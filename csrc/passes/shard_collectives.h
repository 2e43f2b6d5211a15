#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Operations of a trace that become one collective.
struct CollectiveUnit {
  std::vector<std::uint32_t> symbols;  ///< by position
  std::uint32_t place = 0;             ///< where all results are needed, or all arguments are there
  std::int64_t bytes = 0;              ///< when they are whole
};

/// An operation that asks for a collective.
struct CollectiveRequest {
  std::uint32_t symbol = 0;
  std::uint32_t place = 0;
  std::int64_t bytes = 0;
};

/// Puts together those whose arguments from `first_option` on are equal (group, number of processes, name of the
/// bucket), with one dtype and device, unless their bucket has no name. `earliest`: a unit's place is that of its first
/// request, not of its last one. Sorted by place.
[[nodiscard]] std::vector<CollectiveUnit> make_units(const ir::Trace& trace,
                                                     const std::vector<CollectiveRequest>& requests,
                                                     std::size_t first_option, bool earliest);

/// Bytes of the largest unit; zero without one.
[[nodiscard]] std::int64_t largest_unit(const std::vector<CollectiveUnit>& units);

}  // namespace thunder::passes
