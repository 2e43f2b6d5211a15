#include "passes/repeated_heads.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "operators/names.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr std::size_t kRank = 4;
/// The dimension of the heads that share a key, behind that of the groups.
constexpr std::int64_t kShared = 2;

}  // namespace

ir::ValueId heads_before_repeating(ir::ValueId repeated, const ir::Trace& trace, const ir::Uses& uses,
                                   const AliasAnalysis& aliases) {
  const auto operand_of = [&](ir::ValueId id, std::string_view name) {
    const std::uint32_t maker = uses.maker(id);
    if (maker == kNoPlace || trace.symbols[maker].op->name != name || aliases.is_written(id)) return ir::kNoValue;
    return value_argument(trace.symbols[maker], 0);
  };
  const ir::ValueId expanded = operand_of(repeated, operators::kReshape);
  const ir::ValueId unsqueezed = operand_of(expanded, "aten::expand");
  const ir::ValueId heads = operand_of(unsqueezed, operators::kUnsqueeze);
  if (heads == ir::kNoValue) return ir::kNoValue;
  const ir::TensorType& type = *trace.tensor_type(heads);
  const bool is_between = trace.symbols[uses.maker(unsqueezed)].arguments[1] == ir::Argument(kShared);
  if (type.sizes.size() != kRank || !is_between) return ir::kNoValue;
  ir::Dims sizes = trace.tensor_type(expanded)->sizes;
  const ir::Dim times = sizes[kShared];
  sizes.erase(sizes.begin() + kShared);
  if (sizes != type.sizes) return ir::kNoValue;
  sizes[1] *= times;
  return trace.tensor_type(repeated)->sizes == sizes ? heads : ir::kNoValue;
}

}  // namespace thunder::passes
