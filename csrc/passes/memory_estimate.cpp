#include "passes/memory_estimate.h"

#include <algorithm>
#include <vector>

#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

std::int64_t estimate_peak_memory(const ir::Trace& trace, bool inputs_die) {
  const AliasAnalysis aliases(trace);
  const std::vector<std::uint32_t> last_use = aliases.last_uses(trace);
  std::vector<std::int64_t> bytes(trace.value_count(), 0);  // by alias set; counted once, with its first value
  std::vector<std::vector<std::uint32_t>> dying(trace.symbols.size());
  std::int64_t now = 0;
  const auto allocate = [&](ir::ValueId id) {
    const std::uint32_t set = aliases.set_of(id);
    if (bytes[set] != 0) return;
    bytes[set] = size_in_bytes(trace.tensor_type(id));
    now += bytes[set];
    if (last_use[set] != kNoPlace) dying[last_use[set]].push_back(set);
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
