#include "passes/grouped_keys.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "ir/builder.h"
#include "ir/uses.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/repeated_heads.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Arguments of `aten::scaled_dot_product_attention`.
enum Place : std::size_t { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kEnableGroups, kArguments };
/// Dimensions of its operands.
enum Dimension : std::size_t { kHeads = 1, kDimensions = 4 };

/// Heads that were repeated, and perhaps cast afterwards.
struct Repeated {
  ir::ValueId source = ir::kNoValue;
  const ir::BoundSymbol* cast = nullptr;
  std::int64_t times = 1;
};

class Grouper {
 public:
  Grouper(const ir::Trace& trace, ir::DeviceType device, const TakesGroups& takes_groups)
      : trace_(trace),
        device_(device),
        takes_groups_(takes_groups),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kGroupedKeys)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (!may_group(symbol) || !add_grouped(symbol)) result_.add(symbol);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool may_group(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::scaled_dot_product_attention" || symbol.arguments.size() != kArguments) return false;
    const bool is_plain = symbol.arguments[kMask].is<ir::None>() && symbol.arguments[kDropout] == ir::Argument(0.0) &&
                          symbol.arguments[kEnableGroups] == ir::Argument(false);
    const ir::TensorType* query = argument_type(symbol, trace_, kQuery);
    return is_plain && query != nullptr && query->device.type == device_ && query->sizes.size() == kDimensions &&
           !ir::has_symbols(*query);
  }

  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id) const {
    const std::uint32_t place = uses_.maker(id);
    return place == kNoPlace ? nullptr : &trace_.symbols[place];
  }

  [[nodiscard]] std::optional<Repeated> repeated(ir::ValueId id) const {
    Repeated found;
    const ir::BoundSymbol* last = maker(id);
    const bool is_cast = last != nullptr && (last->op->name == operators::kCast ||
                                             (last->op->name == "aten::to" && last->op->overload == "dtype"));
    if (is_cast) found.cast = last;
    found.source =
        heads_before_repeating(found.cast == nullptr ? id : value_argument(*found.cast, 0), trace_, uses_, aliases_);
    const ir::TensorType* source = trace_.tensor_type(found.source);
    if (source == nullptr || ir::has_symbols(*source) || aliases_.is_written(id)) return std::nullopt;
    if (source->sizes[kHeads] == ir::Dim(0)) return std::nullopt;
    if (found.cast != nullptr && !is_dense(*source)) return std::nullopt;  // a cast would lay it out otherwise
    found.times = trace_.tensor_type(id)->sizes[kHeads].hint / source->sizes[kHeads].hint;
    return found.times > 1 ? std::make_optional(found) : std::nullopt;
  }

  /// The type of the heads that were repeated, as attention would take them.
  [[nodiscard]] ir::TensorType type_of(const Repeated& heads) const {
    ir::TensorType type = *trace_.tensor_type(heads.source);
    if (heads.cast != nullptr) type.dtype = result_type(*heads.cast, trace_)->dtype;
    return type;
  }

  bool add_grouped(const ir::BoundSymbol& symbol) {
    const auto key = repeated(value_argument(symbol, kKey));
    const auto value = repeated(value_argument(symbol, kValue));
    if (!key || !value || key->times != value->times) return false;
    if (!takes_groups_({&symbol, type_of(*key), type_of(*value)})) return false;
    ir::BoundSymbol grouped = symbol;
    grouped.arguments[kKey] = ir::Argument(heads_of(*key, symbol));
    grouped.arguments[kValue] = ir::Argument(heads_of(*value, symbol));
    grouped.arguments[kEnableGroups] = ir::Argument(true);
    result_.add(std::move(grouped));
    return true;
  }

  ir::ValueId heads_of(const Repeated& heads, const ir::BoundSymbol& for_symbol) {
    if (heads.cast == nullptr) return heads.source;
    ir::BoundSymbol cast = *heads.cast;
    cast.location = for_symbol.location;
    cast.arguments[0] = ir::Argument(heads.source);
    const ir::ValueId result = result_.add_value(ir::make_type(type_of(heads)));
    cast.results = {ir::Argument(result)};
    cast.nested.clear();
    result_.add(std::move(cast));
    return result;
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  const TakesGroups& takes_groups_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
};

}  // namespace

ir::Trace group_keys(const ir::Trace& trace, ir::DeviceType device, const TakesGroups& takes_groups) {
  return Grouper(trace, device, takes_groups).run();
}

}  // namespace thunder::passes
