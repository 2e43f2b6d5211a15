#include "passes/common_subexpression_elimination.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/equality.h"
#include "ir/substitution.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"

namespace thunder::passes {
namespace {

std::vector<ir::ValueId> values_in(const ir::ArgumentList& arguments) {
  std::vector<ir::ValueId> values;
  for (const ir::Argument& argument : arguments) {
    ir::for_each_value(argument, [&](ir::ValueId id) { values.push_back(id); });
  }
  return values;
}

class Eliminator {
 public:
  Eliminator(const ir::Trace& trace, std::size_t caller_outputs)
      : trace_(trace),
        result_(trace.empty_copy(kCommonSubexpressionElimination.name)),
        aliases_(trace),
        replaced_(trace.value_count()),
        last_write_(trace.value_count(), 0),
        is_output_(trace.value_count(), false) {
    for (const ir::ValueId id : values_in(trace.outputs)) is_output_[ir::index_of(id)] = true;
    const auto end =
        trace.outputs.begin() + static_cast<std::ptrdiff_t>(std::min(caller_outputs, trace.outputs.size()));
    given_out_ = values_in(ir::ArgumentList(trace.outputs.begin(), end));
    result_.symbols.reserve(trace.symbols.size());
    known_.reserve(trace.symbols.size());
  }

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      ir::BoundSymbol& copy = result_.add(symbol);
      replaced_.apply(copy);
      note_writes(copy);
      if (is_candidate(copy) && merge_with_known(copy)) result_.symbols.pop_back();
    }
    replaced_.apply(result_.outputs);
    return std::move(result_);
  }

 private:
  using Position = std::uint32_t;  ///< one more than an index in `result_.symbols`; 0: never

  [[nodiscard]] Position here() const { return static_cast<Position>(result_.symbols.size()); }

  void note_writes(const ir::BoundSymbol& symbol) {
    if (symbol.op->effect) last_effect_ = here();
    for_each_written(symbol, [this](ir::ValueId id) {
      last_write_[aliases_.set_of(id)] = here();
      if (aliases_.touches_input(id)) last_input_write_ = here();
    });
  }

  [[nodiscard]] bool is_candidate(const ir::BoundSymbol& symbol) const {
    const ir::Operator& op = *symbol.op;
    if (operators::may_have_effects(op)) return false;
    bool gives_value = false;
    bool is_written = false;
    for (const ir::Argument& result : symbol.results) {
      ir::for_each_value(result, [&](ir::ValueId id) {
        gives_value = true;
        is_written = is_written || aliases_.is_written(id);
      });
    }
    return gives_value && !is_written;
  }

  /// When what the symbol reads was last written. A primitive may read Python's state, which effects change.
  [[nodiscard]] Position last_write_to_arguments(const ir::BoundSymbol& symbol) const {
    Position last = symbol.op->style == ir::CallStyle::kPrimitive ? last_effect_ : 0;
    for (const ir::Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) {
        last = std::max(last, last_write_[aliases_.set_of(id)]);
        if (aliases_.touches_input(id)) last = std::max(last, last_input_write_);
      });
    }
    return last;
  }

  bool merge_with_known(const ir::BoundSymbol& symbol) {
    const std::size_t hash = ir::hash_call(symbol);
    const auto [begin, end] = known_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      const ir::BoundSymbol& earlier = result_.symbols[entry->second - 1];
      if (!ir::is_same_call(earlier, symbol)) continue;
      if (entry->second > last_write_to_arguments(symbol) && merge(earlier, symbol)) return true;
      entry->second = here();
      return false;
    }
    known_.emplace(hash, here());
    return false;
  }

  bool merge(const ir::BoundSymbol& earlier, const ir::BoundSymbol& symbol) {
    const std::vector<ir::ValueId> kept = values_in(earlier.results);
    const std::vector<ir::ValueId> dropped = values_in(symbol.results);
    if (kept.size() != dropped.size()) return false;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!may_be_one(kept[i], dropped[i], symbol.op->view)) return false;
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      replaced_.set(dropped[i], kept[i]);
      aliases_.join(kept[i], dropped[i]);
      is_output_[ir::index_of(kept[i])] = is_output_[ir::index_of(kept[i])] || is_output_[ir::index_of(dropped[i])];
    }
    return true;
  }

  // The types tell apart what was recorded with and without autograd. The caller may write to outputs: they share
  // memory only if they do so anyway. Nobody writes to what is saved.
  [[nodiscard]] bool may_be_one(ir::ValueId a, ir::ValueId b, bool view) const {
    if (!(*trace_.value(a).type == *trace_.value(b).type)) return false;
    const bool are_outputs = view ? is_output_[ir::index_of(a)] && is_output_[ir::index_of(b)]
                                  : aliases_.touches_output(a) && aliases_.touches_output(b);
    return !are_outputs || !(is_given_out(a) || is_given_out(b));
  }

  [[nodiscard]] bool is_given_out(ir::ValueId id) const {
    return std::ranges::any_of(given_out_, [&](ir::ValueId output) { return aliases_.may_alias(output, id); });
  }

  const ir::Trace& trace_;
  ir::Trace result_;
  AliasAnalysis aliases_;
  ir::Substitution replaced_;
  std::vector<Position> last_write_;  ///< by alias set
  Position last_input_write_ = 0;
  Position last_effect_ = 0;
  std::vector<bool> is_output_;
  std::vector<ir::ValueId> given_out_;  ///< outputs that the caller gets
  std::unordered_multimap<std::size_t, Position> known_;
};

}  // namespace

ir::Trace eliminate_common_subexpressions(const ir::Trace& trace, std::size_t caller_outputs) {
  return Eliminator(trace, caller_outputs).run();
}

}  // namespace thunder::passes
