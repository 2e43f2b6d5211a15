#include "passes/grouped_attention.h"

#include <utility>

#include "ir/uses.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/repeated_heads.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Arguments of `aten::scaled_dot_product_attention`.
enum Place : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kIsGrouped };

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
    const ir::ValueId key = heads_before_repeating(value_argument(symbol, kKey), trace_, uses_, aliases_);
    const ir::ValueId value = heads_before_repeating(value_argument(symbol, kValue), trace_, uses_, aliases_);
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
