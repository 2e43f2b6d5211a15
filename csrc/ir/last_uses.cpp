#include "ir/last_uses.h"

namespace thunder::ir {
namespace {

constexpr std::uint32_t kUnused = 0xffffffffU;
constexpr std::uint32_t kOutput = 0xfffffffeU;

template <typename Visitor>
void for_each_mention(const BoundSymbol& symbol, Visitor&& visit) {
  if (symbol.op->style == CallStyle::kComment) return;
  for (const Argument& argument : symbol.arguments) for_each_value(argument, visit);
  for (const Argument& result : symbol.results) for_each_value(result, visit);
}

/// For each value the index of the last symbol that mentions it.
std::vector<std::uint32_t> last_mentions(const Trace& trace) {
  std::vector<std::uint32_t> last(trace.value_count(), kUnused);
  const auto keep = [&](ValueId id) { last[index_of(id)] = kOutput; };
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    for_each_mention(trace.symbols[i], [&](ValueId id) { last[index_of(id)] = i; });
  }
  for (const Argument& output : trace.outputs) for_each_value(output, keep);
  for (const BoundSymbol& symbol : trace.symbols) {
    if (symbol.op->style == CallStyle::kReturn) for_each_mention(symbol, keep);
  }
  return last;
}

}  // namespace

LastUses::LastUses(const Trace& trace) {
  std::vector<std::uint32_t> last = last_mentions(trace);
  for (const ValueId input : trace.inputs) {
    if (last[index_of(input)] == kUnused) unused_inputs_.push_back(input);
  }
  begins_.reserve(trace.symbols.size() + 1);
  begins_.push_back(0);
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    for_each_mention(trace.symbols[i], [&](ValueId id) {
      if (last[index_of(id)] != i) return;
      last[index_of(id)] = kUnused;  // listed once
      values_.push_back(id);
    });
    begins_.push_back(static_cast<std::uint32_t>(values_.size()));
  }
}

}  // namespace thunder::ir
