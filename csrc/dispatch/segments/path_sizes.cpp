#include "dispatch/segments/path_sizes.h"

#include <algorithm>

namespace thunder::dispatch {

PathSizes::PathSizes(const ir::Trace& recorded) : sources(ir::symbol_sources(recorded)) {
  const std::vector<std::uint32_t> symbols = ir::symbols_of(recorded);
  if (symbols.empty()) return;
  symbol_count = symbols.back() + std::size_t{1};
  for (std::size_t i = 0; i < recorded.inputs.size(); ++i) {
    const ir::TensorType* type = recorded.tensor_type(recorded.inputs[i]);
    for (std::size_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      if (!type->sizes[d].is_concrete()) input_sizes.push_back({i, d, type->sizes[d]});
    }
  }
  for (const ir::Condition& condition : recorded.conditions) {
    SizeCondition& added = conditions.emplace_back(condition, std::vector<std::uint32_t>(), ir::to_string(condition));
    ir::add_symbols(condition, added.symbols);
  }
}

SymbolBinding::SymbolBinding(const PathSizes& sizes)
    : sizes_(sizes), values_(sizes.symbol_count, 0), is_checked_(sizes.conditions.size(), false) {}

// A symbol stands for a size from two on.
bool SymbolBinding::set(std::uint32_t symbol, std::int64_t value) {
  if (value < 2) return false;
  values_[symbol] = value;
  return true;
}

bool SymbolBinding::is_known(std::span<const std::uint32_t> symbols) const {
  return std::ranges::all_of(symbols, [&](std::uint32_t symbol) { return values_[symbol] != 0; });
}

bool SymbolBinding::check_conditions() {
  for (std::size_t i = 0; i < is_checked_.size(); ++i) {
    const auto& [condition, symbols, text] = sizes_.conditions[i];
    if (is_checked_[i] || !is_known(symbols)) continue;
    is_checked_[i] = true;
    if (ir::holds(condition, values_)) continue;
    unmet_ = text;
    return false;
  }
  return true;
}

bool SymbolBinding::bind_inputs(std::span<const at::Tensor> inputs) {
  if (sizes_.symbol_count == 0) return true;
  for (const ir::SymbolSource& source : sizes_.sources) {
    const std::int64_t size = inputs[source.input].size(source.dim);
    if (size % source.factor != 0 || !set(source.symbol, size / source.factor)) return false;
  }
  const auto is_as_told = [&](const PathSizes::InputSize& each) {
    return inputs[each.input].size(static_cast<std::int64_t>(each.dim)) == ir::evaluate(each.size, values_);
  };
  return std::ranges::all_of(sizes_.input_sizes, is_as_told) && check_conditions();
}

bool SymbolBinding::bind(const Expected& expected, const Observed& observed) {
  if (expected.size() != observed.size()) return false;
  bool is_any_found = false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (const auto symbol = ir::symbol_of(expected[i]); symbol && values_[*symbol] == 0) {
      if (!set(*symbol, observed[i])) return false;
      is_any_found = true;
    } else if ((expected[i].is_concrete() ? expected[i].hint : ir::evaluate(expected[i], values_)) != observed[i]) {
      return false;
    }
  }
  return !is_any_found || check_conditions();
}

}  // namespace thunder::dispatch
