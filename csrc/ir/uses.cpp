#include "ir/uses.h"

#include <numeric>

namespace thunder::ir {
namespace {

template <typename Visitor>
void for_each_read(const Trace& trace, Visitor&& visit) {
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    if (trace.symbols[i].op->style == CallStyle::kComment) continue;
    for (const Argument& argument : trace.symbols[i].arguments) {
      for_each_value(argument, [&](ValueId id) { visit(index_of(id), i); });
    }
  }
}

}  // namespace

Uses::Uses(const Trace& trace)
    : makers_(trace.value_count(), kNoPlace),
      begins_(trace.value_count(), 0),
      counts_(trace.value_count(), 0),
      is_output_(trace.value_count(), false) {
  for_each_read(trace, [&](std::uint32_t id, std::uint32_t) { ++counts_[id]; });
  readers_.resize(std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}));
  std::exclusive_scan(counts_.begin(), counts_.end(), begins_.begin(), 0U);
  ends_ = begins_;
  for_each_read(trace, [&](std::uint32_t id, std::uint32_t i) {
    if (ends_[id] == begins_[id] || readers_[ends_[id] - 1] != i) readers_[ends_[id]++] = i;
  });
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    const BoundSymbol& symbol = trace.symbols[i];
    for (const Argument& result : symbol.results) {
      for_each_value(result, [&](ValueId id) { makers_[index_of(id)] = i; });
    }
    const auto returns = [&](ValueId id) { is_output_[index_of(id)] = true; };
    if (symbol.op->style != CallStyle::kReturn) continue;
    for (const Argument& argument : symbol.arguments) for_each_value(argument, returns);
  }
  for (const Argument& output : trace.outputs) {
    for_each_value(output, [&](ValueId id) {
      is_output_[index_of(id)] = true;
      ++counts_[index_of(id)];
    });
  }
}

std::uint32_t Uses::last_use(ValueId id) const {
  if (is_output(id)) return kNoPlace;
  return readers(id).empty() ? maker(id) : readers(id).back();
}

}  // namespace thunder::ir
