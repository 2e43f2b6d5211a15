#include "passes/grouped_attention.h"

#include <string_view>
#include <utility>

#include "ir/uses.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Arguments of `aten::scaled_dot_product_attention`.
enum Place : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kIsGrouped };

constexpr std::size_t kRank = 4;
/// The dimension of the heads that share a key, behind that of the groups.
constexpr std::int64_t kShared = 2;

class Grouping {
 public:
  Grouping(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator)
      : trace_(trace),
        device_(device),
        uses_(trace),
        aliases_(trace),
        grouped_(find_operator("thunder::grouped_attention", "")) {}

  ir::Trace run() {
    ir::Trace result = trace_.empty_copy(kGroupedAttention);
    for (const ir::BoundSymbol& symbol : trace_.symbols) result.add(grouped(symbol));
    return result;
  }

 private:
  /// The symbol as it was, where its keys and values are not repeated.
  [[nodiscard]] ir::BoundSymbol grouped(const ir::BoundSymbol& symbol) const {
    const bool is_attention = operators::has_fact(*symbol.op, operators::Fact::kIsAttention);
    if (grouped_ == nullptr || !is_attention || symbol.arguments.size() <= kIsGrouped) return symbol;
    const ir::TensorType* type = result_type(symbol, trace_);
    const bool is_plain =
        symbol.arguments[kDropout] == ir::Argument(0.0) && symbol.arguments[kIsGrouped] == ir::Argument(false);
    if (type == nullptr || type->device.type != device_ || !is_plain) return symbol;
    const ir::ValueId key = shared_by_group(value_argument(symbol, kKey));
    const ir::ValueId value = shared_by_group(value_argument(symbol, kValue));
    if (key == ir::kNoValue || value == ir::kNoValue || groups_of(key) != groups_of(value)) return symbol;
    ir::ArgumentList strides;
    for (const ir::Dim& stride : type->strides) {
      if (!stride.is_concrete()) return symbol;
      strides.emplace_back(stride);
    }
    ir::BoundSymbol copy = symbol;
    copy.op = grouped_;
    copy.arguments = {symbol.arguments[kQuery],
                      key,
                      value,
                      symbol.arguments[kMask],
                      symbol.arguments[kIsCausal],
                      symbol.arguments[kScale],
                      ir::Argument(std::move(strides))};
    copy.comment = "keys and values are shared by heads";
    return copy;
  }

  [[nodiscard]] ir::Dim groups_of(ir::ValueId id) const { return trace_.tensor_type(id)->sizes[1]; }

  /// The operand of the operator that gives a value, where nothing writes to either.
  [[nodiscard]] ir::ValueId operand_of(ir::ValueId id, std::string_view name) const {
    const std::uint32_t maker = id == ir::kNoValue ? kNoPlace : uses_.maker(id);
    if (maker == kNoPlace || trace_.symbols[maker].op->name != name || aliases_.is_written(id)) return ir::kNoValue;
    return value_argument(trace_.symbols[maker], 0);
  }

  /// The keys, or values, of which each group has one, that a value has for each head; kNoValue: they are not repeated.
  [[nodiscard]] ir::ValueId shared_by_group(ir::ValueId repeated) const {
    const ir::ValueId expanded = operand_of(repeated, operators::kReshape);
    const ir::ValueId unsqueezed = operand_of(expanded, "aten::expand");
    const ir::ValueId shared = operand_of(unsqueezed, operators::kUnsqueeze);
    if (shared == ir::kNoValue) return ir::kNoValue;
    const ir::TensorType& type = *trace_.tensor_type(shared);
    const bool is_between = trace_.symbols[uses_.maker(unsqueezed)].arguments[1] == ir::Argument(kShared);
    if (type.sizes.size() != kRank || !is_between) return ir::kNoValue;
    ir::Dims sizes = trace_.tensor_type(expanded)->sizes;
    const ir::Dim heads = sizes[kShared];
    sizes.erase(sizes.begin() + kShared);
    if (sizes != type.sizes) return ir::kNoValue;
    sizes[1] *= heads;
    return trace_.tensor_type(repeated)->sizes == sizes ? shared : ir::kNoValue;
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  const ir::Operator* grouped_;
};

}  // namespace

ir::Trace group_attention(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator) {
  return Grouping(trace, device, find_operator).run();
}

}  // namespace thunder::passes
