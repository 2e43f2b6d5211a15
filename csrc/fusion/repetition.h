#pragma once

#include <cstdint>
#include <vector>

#include "fusion/partition.h"
#include "ir/trace.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_order.h"

namespace thunder::fusion {

/// A trace whose symbols are in groups.
struct GroupedTrace {
  const ir::Trace& trace;
  const FusionModel& model;
  const passes::SymbolOrder& order;
  const passes::AliasAnalysis& aliases;
  const std::vector<std::uint32_t>& group_of;  ///< by symbol
  const std::vector<bool>& is_doubled;         ///< symbols that are made again outside of their groups
  std::vector<FusionGroup>& groups;
  std::vector<bool>& read_outside;  ///< values of groups that something outside of the group reads
};

/// Finds symbols that are cheaper to run again in each group that reads what they lead to than to write and to read
/// that: casts, masks, distances from a mean. What a group gives to others is a minimum cut, by bytes, between what
/// they read of it and what is in memory anyway. Takes symbols that only other groups need from their own group, and
/// says in `read_outside` what is given instead.
[[nodiscard]] std::vector<bool> find_repeated(const GroupedTrace& grouped);

}  // namespace thunder::fusion
