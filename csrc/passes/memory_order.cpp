#include "passes/memory_order.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "passes/alias_analysis.h"
#include "passes/memory_estimate.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

class Scheduler {
 public:
  Scheduler(const ir::Trace& trace, bool inputs_die)
      : trace_(trace),
        inputs_die_(inputs_die),
        aliases_(trace),
        result_(trace.empty_copy(kForwardMemoryOrder.name)),
        uses_(trace),
        last_use_(aliases_.last_uses(trace)),
        waits_(trace.symbols.size(), false),
        next_communication_(trace.symbols.size(), kNoPlace),
        emitted_(trace.symbols.size(), false) {
    for (std::uint32_t i = static_cast<std::uint32_t>(trace.symbols.size()); i-- > 1;) {
      next_communication_[i - 1] = operators::communicates(*trace.symbols[i].op) ? i : next_communication_[i];
    }
    for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
      if (trace.symbols[i].op->mutates || trace.symbols[i].op->effect) last_write_ = i;
    }
  }

  ir::Trace run() {
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) waits_[i] = may_wait(i);
    result_.symbols.reserve(trace_.symbols.size());
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!waits_[i]) emit(i);
    }
    for (const ir::Argument& output : trace_.outputs) {
      ir::for_each_value(output, [&](ir::ValueId id) { emit_maker(id); });
    }
    return std::move(result_);
  }

 private:
  /// Whether the symbol is better run when somebody asks for its results.
  [[nodiscard]] bool may_wait(std::uint32_t i) const {
    const ir::BoundSymbol& symbol = trace_.symbols[i];
    const bool is_constant = symbol.op->style == ir::CallStyle::kPrimitive && !symbol.op->effect;
    if (!is_pure(symbol) && !is_constant) return false;
    // A program that raises an error runs again in eager, from what the inputs held.
    if (i < last_write_ && may_raise(trace_, symbol)) return false;
    bool reads_what_changes = false;
    std::uint32_t first_use = kNoPlace;
    std::int64_t shortened = 0;
    std::int64_t lengthened = 0;
    for_each_result(symbol, [&](ir::ValueId id) {
      reads_what_changes = reads_what_changes || aliases_.is_written(id);
      if (!uses_.readers(id).empty()) first_use = std::min(first_use, uses_.readers(id).front());
      if (!symbol.op->view) shortened += size_in_bytes(trace_.tensor_type(id));
    });
    for_each_argument(symbol, [&](ir::ValueId id) {
      reads_what_changes = reads_what_changes || aliases_.is_written(id);
      const bool dies = last_use_[aliases_.set_of(id)] < first_use && (inputs_die_ || aliases_.is_own_memory(id));
      const std::uint32_t maker = uses_.maker(id);
      const bool comes_later = maker != kNoPlace && waits_[maker];
      if (dies && !comes_later) lengthened += size_in_bytes(trace_.tensor_type(id));
    });
    const bool passes_communication = first_use > next_communication_[i];
    return first_use != kNoPlace && !reads_what_changes && !passes_communication && shortened > lengthened;
  }

  void emit_maker(ir::ValueId id) {
    if (uses_.maker(id) != kNoPlace) emit(uses_.maker(id));
  }

  void emit(std::uint32_t i) {
    if (emitted_[i]) return;
    emitted_[i] = true;
    for_each_argument(trace_.symbols[i], [&](ir::ValueId id) { emit_maker(id); });
    result_.add(trace_.symbols[i]);
  }

  const ir::Trace& trace_;
  bool inputs_die_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  ir::Uses uses_;
  std::vector<std::uint32_t> last_use_;  ///< by alias set
  std::vector<bool> waits_;
  std::vector<std::uint32_t> next_communication_;  ///< by symbol: the first one behind it
  std::uint32_t last_write_ = 0;                   ///< the last symbol that writes to memory, or has another effect
  std::vector<bool> emitted_;
};

}  // namespace

ir::Trace order_for_memory(const ir::Trace& trace, bool inputs_die) {
  ir::Trace ordered = Scheduler(trace, inputs_die).run();
  const bool better = estimate_peak_memory(ordered, inputs_die) < estimate_peak_memory(trace, inputs_die);
  if (better) return ordered;
  ir::Trace same = trace;
  same.add_history(kForwardMemoryOrder.name);
  return same;
}

}  // namespace thunder::passes
