// Operations that put tensors into a larger one, as a fusion reads them: their roles, and their lowering.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "fusion/buffer_regions.h"
#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// Elements of a part that follow one another both in its memory and in that of the result; 1 where its dimensions have
/// another order.
std::int64_t run_of(const BufferRegion& part, const ir::TensorType& joined, const Trace& trace) {
  const Dims strides = part.in_result(trace.tensor_type(part.value)->strides, 0);
  std::vector<std::size_t> order = memory_order(joined);
  std::erase_if(order, [&](std::size_t dim) { return part.sizes[dim] == Dim(1); });
  if (!std::ranges::is_sorted(order, std::greater(), [&](std::size_t dim) { return strides[dim].hint; })) return 1;
  order = memory_order(joined);
  std::int64_t run = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t dim = order[i];
    if (part.sizes[dim] != Dim(1) && strides[dim].hint != run) break;
    run *= part.sizes[dim].hint;
    if (part.sizes[dim] != joined.sizes[dim]) break;
  }
  return run;
}

/// Each run is a call of a kernel: on average they must be worth it.
bool has_long_runs(const BufferRegions& regions, const ir::TensorType& joined, const Trace& trace,
                   const Target& target) {
  std::int64_t count = 0;
  for (const BufferRegion& part : regions.parts) {
    count += passes::element_count(*trace.tensor_type(part.value)) / run_of(part, joined, trace);
  }
  return passes::element_count(joined) >= count * target.least_run;
}

/// Whether the type holds the number without rounding, which is left to eager.
bool holds(const ir::TensorType& type, double number) {
  if (number == 0 || !is_float(&type)) return number == 0;
  const bool is_wide = type.dtype == ir::Dtype::kFloat32 || type.dtype == ir::Dtype::kFloat64;
  return !std::isfinite(number) || (is_wide && std::abs(number) <= std::numeric_limits<float>::max());
}

/// Its parts are read where they are in memory.
FusionRole placement_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const auto regions = buffer_regions_of(symbol, trace);
  const ir::TensorType* joined = result_type(symbol, trace);
  if (!regions || !passes::is_dense(*joined) || passes::element_count(*joined) < 2) return {};
  if (!holds(*joined, regions->fill.value_or(0)) || !has_long_runs(*regions, *joined, trace, target)) return {};
  FusionRole role{FusionRole::Kind::kWork, passes::single_result(symbol), 0, {FusionRole::Result::kElements}, 0, 1};
  role.gathered = 0b11;
  return role;
}
void lower_placement(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.assemble(symbol));
}
constexpr Operation kPlacement{&placement_role, &lower_placement};

}  // namespace

void add_placements(std::unordered_map<std::string_view, Operation>& table) {
  for (const std::string_view name : placing_operators()) table.emplace(name, kPlacement);
}

}  // namespace thunder::fusion
