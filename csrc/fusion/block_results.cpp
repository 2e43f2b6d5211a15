#include "fusion/block_results.h"

#include <algorithm>

#include "fusion/batch_members.h"
#include "fusion/buffer_regions.h"
#include "fusion/region.h"
#include "ir/layout.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "operators/row_copies.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

bool is_copy(const BoundSymbol& symbol) { return operators::has_fact(*symbol.op, operators::Fact::kCopies); }

bool is_row_copy(const BoundSymbol& symbol) { return operators::find_row_copy(*symbol.op) != nullptr; }

namespace {

/// The value that an operation at the end of a fusion copies to its first argument; kNoValue: it copies nothing.
ir::ValueId copied_by(const BoundSymbol& symbol) {
  if (is_copy(symbol)) return passes::value_argument(symbol, 1);
  const operators::RowCopy* rows = operators::find_row_copy(*symbol.op);
  return rows == nullptr ? ir::kNoValue : passes::value_argument(symbol, rows->source);
}

}  // namespace

std::optional<ir::Dims> slice_start(const BoundSymbol& symbol, const Trace& trace) {
  const auto regions = buffer_regions_of(symbol, trace);
  const ir::TensorType* type = result_type(symbol, trace);
  if (!regions || regions->parts.size() != 1 || !is_contiguous(*type)) return std::nullopt;
  const BufferRegion& part = regions->parts[0];
  if (passes::value_argument(symbol, 0) != part.value || part.missing_dim ||
      !is_contiguous(*trace.tensor_type(part.value)))
    return std::nullopt;
  ir::Dims start;
  for (std::size_t i = 0; i < part.start.size(); ++i) {
    start.push_back(Dim(0) - part.start[i]);
    const Dim& size = part.sizes[i];
    if (start[i] == Dim(0) && type->sizes[i] == size) continue;
    const bool are_numbers = start[i].is_concrete() && size.is_concrete() && type->sizes[i].is_concrete();
    if (!are_numbers || start[i].hint < 0 || start[i].hint + type->sizes[i].hint > size.hint) return std::nullopt;
  }
  return start;
}

std::vector<CopyTarget> copy_targets(const BoundSymbol& fused) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
  std::vector<CopyTarget> targets;
  for (const BoundSymbol& symbol : fused.nested) {
    const ir::ValueId copied = copied_by(symbol);
    if (copied == ir::kNoValue) continue;
    const ir::ValueId target = passes::value_argument(symbol, 0);
    const auto place = std::ranges::find(inputs, target);
    const auto reads_it = [&](const BoundSymbol& other) {
      bool reads = false;
      if (copied_by(other) == ir::kNoValue)
        passes::for_each_argument(other, [&](ir::ValueId id) { reads = reads || id == target; });
      return reads;
    };
    targets.push_back({static_cast<std::size_t>(place - inputs.begin()), copied,
                       std::ranges::any_of(fused.nested, reads_it), is_row_copy(symbol)});
  }
  return targets;
}

std::vector<std::size_t> written_inputs(const BoundSymbol& fused) {
  std::vector<std::size_t> places;
  if (!is_batch(fused)) {
    for (const CopyTarget& copy : copy_targets(fused)) places.push_back(copy.input);
    return places;
  }
  for (const BatchMember& member : members_of(fused)) {
    for (const std::size_t input : written_inputs(*member.kernel)) places.push_back(member.inputs[input]);
  }
  return places;
}

}  // namespace thunder::fusion
