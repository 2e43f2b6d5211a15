#include "passes/constant_masks.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/extraction.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Arguments of `aten::scaled_dot_product_attention`.
enum Place : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kIsCausal };

class Simplifier {
 public:
  Simplifier(const ir::Trace& trace, const ReadMask& read, ir::FindOperator find_operator)
      : trace_(trace),
        read_(read),
        restride_(find_operator("thunder::restride", "")),
        aliases_(trace),
        producer_(trace.value_count(), nullptr) {
    for (const ir::BoundSymbol& symbol : trace.symbols) {
      for_each_result(symbol, [&](ir::ValueId id) { producer_[ir::index_of(id)] = &symbol; });
    }
  }

  ir::Trace run() {
    ir::Trace result = trace_.empty_copy(kConstantMasks);
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      const MaskContent content =
          operators::has_fact(*symbol.op, operators::Fact::kIsAttention) ? content_for(symbol) : MaskContent::kOther;
      if (content == MaskContent::kOther) {
        result.add(symbol);
      } else {
        add_without_mask(symbol, content, result);
      }
    }
    return result;
  }

 private:
  [[nodiscard]] MaskContent content_for(const ir::BoundSymbol& symbol) {
    const ir::ValueId mask = value_argument(symbol, kMask);
    const ir::TensorType* query = operand_type(trace_, value_argument(symbol, kQuery));
    const ir::TensorType* key = operand_type(trace_, value_argument(symbol, kKey));
    const bool has_parts = mask != ir::kNoValue && query != nullptr && key != nullptr && query->sizes.size() > 1 &&
                           key->sizes.size() > 1 && single_result(symbol) != ir::kNoValue;
    if (!has_parts || symbol.arguments[kIsCausal] != ir::Argument(false)) return MaskContent::kOther;
    const ir::TensorType& type = *trace_.tensor_type(mask);
    if (type.dtype != ir::Dtype::kBool || !fits(type, *query, *key)) return MaskContent::kOther;
    auto [known, is_new] = contents_.try_emplace(mask, MaskContent::kOther);
    if (is_new && ir::element_count(type) <= kMaskElements) known->second = content_of(mask);
    return known->second;
  }

  /// Whether the mask is one of these scores: it makes no result larger.
  static bool fits(const ir::TensorType& mask, const ir::TensorType& query, const ir::TensorType& key) {
    const std::size_t rank = query.sizes.size();
    if (mask.sizes.size() < 2 || mask.sizes.size() > rank) return false;
    const std::size_t missing = rank - mask.sizes.size();
    const auto size_at = [&](std::size_t dim) {
      return dim + 1 == rank ? key.sizes[key.sizes.size() - 2] : query.sizes[dim];
    };
    for (std::size_t i = 0; i < mask.sizes.size(); ++i) {
      const bool is_in_scores = mask.sizes[i] == size_at(i + missing);
      if (!is_in_scores && (i + 2 >= mask.sizes.size() || mask.sizes[i] != ir::Dim(1))) return false;
    }
    return true;
  }

  [[nodiscard]] MaskContent content_of(ir::ValueId mask) const {
    std::vector<const ir::BoundSymbol*> needed;
    if (!collect(mask, needed)) return MaskContent::kOther;
    ir::Trace part = ir::empty_part(trace_, kConstantMasks);
    part.outputs = {ir::Argument(mask)};
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (std::ranges::find(needed, &symbol) != needed.end()) part.add(symbol);
    }
    return read_(part);
  }

  /// Adds the symbols that compute a value; false: it depends on more than constants.
  bool collect(ir::ValueId id, std::vector<const ir::BoundSymbol*>& needed) const {
    const ir::BoundSymbol* symbol = producer_[ir::index_of(id)];
    const auto is_own = [&] { return is_pure(*symbol) && symbol->op->name.starts_with("aten::"); };
    if (symbol == nullptr || aliases_.is_written(id) || (!is_constant(*symbol) && !is_own())) return false;
    if (std::ranges::find(needed, symbol) != needed.end()) return true;
    needed.push_back(symbol);
    bool is_known = true;
    for_each_argument(*symbol, [&](ir::ValueId argument) { is_known = is_known && collect(argument, needed); });
    return is_known;
  }

  void add_without_mask(const ir::BoundSymbol& symbol, MaskContent content, ir::Trace& to) const {
    const ir::ValueId result = single_result(symbol);
    ir::BoundSymbol copy = symbol;
    copy.arguments[kMask] = ir::Argument();
    copy.arguments[kIsCausal] = ir::Argument(content == MaskContent::kLowerTriangle);
    copy.comment = content == MaskContent::kAll ? "its mask lets everything through" : "its mask is a lower triangle";
    // The kernels for the CPU lay their results out alike.
    if (trace_.tensor_type(result)->device.type == ir::DeviceType::kCpu) {
      to.add(std::move(copy));
      return;
    }
    const ir::ValueId attended = to.add_value(trace_.value(result).type);
    copy.results = {ir::Argument(attended)};
    to.add(std::move(copy));
    ir::ArgumentList strides;
    for (const ir::Dim& stride : trace_.tensor_type(result)->strides) strides.emplace_back(stride.hint);
    ir::BoundSymbol restride;
    restride.op = restride_;
    restride.arguments = {ir::Argument(attended), ir::Argument(std::move(strides))};
    restride.results = {ir::Argument(result)};
    restride.location = symbol.location;
    to.add(std::move(restride));
  }

  const ir::Trace& trace_;
  const ReadMask& read_;
  const ir::Operator* restride_;
  AliasAnalysis aliases_;
  std::vector<const ir::BoundSymbol*> producer_;  ///< by value; null: an input
  std::unordered_map<ir::ValueId, MaskContent> contents_;
};

}  // namespace

ir::Trace simplify_masks(const ir::Trace& trace, const ReadMask& read, ir::FindOperator find_operator) {
  return Simplifier(trace, read, find_operator).run();
}

}  // namespace thunder::passes
