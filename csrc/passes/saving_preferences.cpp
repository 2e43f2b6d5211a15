#include "passes/saving_preferences.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "operators/facts.h"
#include "operators/names.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Which values of a forward are among those that it saves, and `holds` of them and the numbers of the backward's
/// inputs, or are what these are views of.
template <typename Holds>
std::vector<bool> saved_values(const ir::Trace& forward, std::size_t output_count, const Holds& holds) {
  std::vector<bool> found(forward.value_count(), false);
  const ir::Uses uses(forward);
  for (std::size_t i = output_count; i < forward.outputs.size(); ++i) {
    const auto* saved = forward.outputs[i].get<ir::ValueId>();
    if (saved == nullptr || !holds(*saved, i - output_count)) continue;
    for (ir::ValueId value = *saved; value != ir::kNoValue;) {  // through views, which are not saved themselves
      found[ir::index_of(value)] = true;
      const std::uint32_t maker = uses.maker(value);
      const bool is_view = maker != kNoPlace && operators::is_view(*forward.symbols[maker].op);
      value = is_view ? value_argument(forward.symbols[maker], 0) : ir::kNoValue;
    }
  }
  return found;
}

/// Whether a library's kernel runs the symbol, so that no fusion goes across it.
bool runs_in_library(const ir::BoundSymbol& symbol) {
  return operators::find_matmul(*symbol.op) != nullptr ||
         operators::has_fact(*symbol.op, operators::Fact::kReadsFromMemory);
}

/// Whether a symbol that reads a value, or a view of it, reads what a library computes from that value, too.
bool is_read_beside_what_follows(const ir::Trace& forward, const ir::Uses& uses, ir::ValueId value) {
  enum : std::uint8_t { kNone, kDepends, kThroughLibrary };
  std::vector<ir::ValueId> views{value};
  std::vector<std::uint8_t> state(forward.value_count(), kNone);
  state[ir::index_of(value)] = kDepends;
  std::uint32_t last = 0;
  for (const std::uint32_t reader : uses.readers(value)) last = std::max(last, reader);
  for (std::uint32_t i = uses.maker(value) + 1; i <= last; ++i) {
    const ir::BoundSymbol& symbol = forward.symbols[i];
    std::uint8_t most = kNone;
    bool reads_value = false;
    for_each_argument(symbol, [&](ir::ValueId id) {
      most = std::max(most, state[ir::index_of(id)]);
      reads_value = reads_value || std::ranges::find(views, id) != views.end();
    });
    if (most == kNone) continue;
    if (reads_value && most == kThroughLibrary) return true;
    if (reads_value && operators::is_view(*symbol.op)) {
      const ir::ValueId view = single_result(symbol);
      views.push_back(view);
      if (view != ir::kNoValue) {
        for (const std::uint32_t reader : uses.readers(view)) last = std::max(last, reader);
      }
    }
    if (runs_in_library(symbol)) most = kThroughLibrary;
    for_each_result(symbol, [&](ir::ValueId id) { state[ir::index_of(id)] = most; });
  }
  return false;
}

}  // namespace

std::vector<bool> compared_values(const ir::Trace& forward, const ir::Trace& backward, std::size_t output_count) {
  std::vector<bool> reaches_test(backward.value_count(), false);
  for (const ir::BoundSymbol& symbol : std::views::reverse(backward.symbols)) {
    bool reaches = operators::has_fact(*symbol.op, operators::Fact::kTestsEquality);
    for_each_result(symbol, [&](ir::ValueId id) { reaches = reaches || reaches_test[ir::index_of(id)]; });
    if (!reaches) continue;
    for_each_argument(symbol, [&](ir::ValueId id) { reaches_test[ir::index_of(id)] = true; });
  }
  return saved_values(forward, output_count, [&](ir::ValueId value, std::size_t input) {
    return is_float(forward.tensor_type(value)) && reaches_test[ir::index_of(backward.inputs[input])];
  });
}

std::vector<bool> values_read_from_memory(const ir::Trace& forward, const ir::Trace& backward, Recompute policy,
                                          std::size_t output_count) {
  if (policy == Recompute::kMemory) return std::vector<bool>(forward.value_count(), false);
  std::vector<bool> is_read(backward.value_count(), false);
  for (const ir::BoundSymbol& symbol : std::views::reverse(backward.symbols)) {
    bool reads = runs_in_library(symbol);
    if (operators::is_view(*symbol.op)) {
      for_each_result(symbol, [&](ir::ValueId id) { reads = reads || is_read[ir::index_of(id)]; });
    }
    if (!reads) continue;
    for_each_argument(symbol, [&](ir::ValueId id) { is_read[ir::index_of(id)] = true; });
  }
  return saved_values(forward, output_count, [&](ir::ValueId value, std::size_t input) {
    return is_on_gpu(forward.tensor_type(value)) && is_read[ir::index_of(backward.inputs[input])];
  });
}

std::vector<bool> values_in_memory(const ir::Trace& forward, const ir::Uses& uses, Recompute policy) {
  std::vector<bool> found(forward.value_count(), false);
  if (policy != Recompute::kFast) return found;
  for (const ir::BoundSymbol& symbol : forward.symbols) {
    if (operators::is_view(*symbol.op)) continue;
    for_each_result(symbol, [&](ir::ValueId id) {
      if (!is_on_gpu(forward.tensor_type(id)) || uses.readers(id).size() < 2) return;
      found[ir::index_of(id)] = is_read_beside_what_follows(forward, uses, id);
    });
  }
  return found;
}

std::vector<bool> gathered_values(const ir::Trace& forward) {
  std::vector<bool> gathered(forward.value_count(), false);
  for (const ir::BoundSymbol& symbol : forward.symbols) {
    const ir::ValueId first = value_argument(symbol, 0);
    const bool is_gather = symbol.op->name == operators::kGatherShards && symbol.op->overload.empty();
    const bool is_same = operators::is_view(*symbol.op) || symbol.op->name == operators::kCast;
    if (!is_gather && !(is_same && first != ir::kNoValue && gathered[ir::index_of(first)])) continue;
    for_each_result(symbol, [&](ir::ValueId id) { gathered[ir::index_of(id)] = true; });
  }
  return gathered;
}

}  // namespace thunder::passes
