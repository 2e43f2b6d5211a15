#include "passes/memory_estimate.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

std::int64_t estimate_peak_memory(const ir::Trace& trace, bool inputs_die) {
  const AliasAnalysis aliases(trace);
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> last_use(trace.value_count(), 0);
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    if (trace.symbols[i].op->style == ir::CallStyle::kComment) continue;
    const auto use = [&](ir::ValueId id) { last_use[aliases.set_of(id)] = i; };
    for_each_argument(trace.symbols[i], use);
    for_each_result(trace.symbols[i], use);
  }
  for (const ir::Argument& output : trace.outputs) {
    ir::for_each_value(output, [&](ir::ValueId id) { last_use[aliases.set_of(id)] = kNever; });
  }

  std::vector<std::int64_t> bytes(trace.value_count(), 0);  // by alias set; counted once, with its first value
  std::vector<std::vector<std::uint32_t>> dying(trace.symbols.size());
  std::int64_t now = 0;
  const auto allocate = [&](ir::ValueId id) {
    const std::uint32_t set = aliases.set_of(id);
    if (bytes[set] != 0) return;
    bytes[set] = size_in_bytes(trace.tensor_type(id));
    now += bytes[set];
    if (last_use[set] != kNever) dying[last_use[set]].push_back(set);
  };
  if (inputs_die && !trace.symbols.empty()) std::ranges::for_each(trace.inputs, allocate);
  std::int64_t peak = now;
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    for_each_result(trace.symbols[i], [&](ir::ValueId id) {
      if (aliases.is_own_memory(id)) allocate(id);
    });
    peak = std::max(peak, now);
    for (const std::uint32_t set : dying[i]) now -= bytes[set];
  }
  return peak;
}

}  // namespace thunder::passes
