#include "passes/shard_collectives.h"

#include <algorithm>
#include <string>

#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

bool may_share(const ir::Trace& trace, std::uint32_t left, std::uint32_t right, std::size_t first_option) {
  const ir::BoundSymbol& one = trace.symbols[left];
  const ir::BoundSymbol& other = trace.symbols[right];
  const auto* bucket = one.arguments.back().get<std::string>();
  if (one.op != other.op || bucket == nullptr || bucket->empty()) return false;
  for (std::size_t i = first_option; i < one.arguments.size(); ++i) {
    if (!(one.arguments[i] == other.arguments[i])) return false;
  }
  const ir::TensorType& type = *trace.tensor_type(single_result(one));
  const ir::TensorType& other_type = *trace.tensor_type(single_result(other));
  return type.dtype == other_type.dtype && type.device == other_type.device;
}

}  // namespace

std::vector<CollectiveUnit> make_units(const ir::Trace& trace, const std::vector<CollectiveRequest>& requests,
                                       std::size_t first_option, bool earliest) {
  std::vector<CollectiveUnit> units;
  for (const CollectiveRequest& request : requests) {
    const auto fits = [&](const CollectiveUnit& unit) {
      return may_share(trace, unit.symbols.front(), request.symbol, first_option);
    };
    auto unit = std::ranges::find_if(units, fits);
    if (unit == units.end()) unit = units.insert(units.end(), CollectiveUnit{{}, request.place, 0});
    unit->symbols.push_back(request.symbol);
    unit->place = earliest ? std::min(unit->place, request.place) : std::max(unit->place, request.place);
    unit->bytes += request.bytes;
  }
  std::ranges::stable_sort(units, {}, &CollectiveUnit::place);
  return units;
}

std::int64_t largest_unit(const std::vector<CollectiveUnit>& units) {
  std::int64_t most = 0;
  for (const CollectiveUnit& unit : units) most = std::max(most, unit.bytes);
  return most;
}

}  // namespace thunder::passes
