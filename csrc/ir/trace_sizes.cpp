#include "ir/trace_sizes.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace thunder::ir {
namespace {

template <typename Visitor>
void for_each_dim(const TensorType& type, const Visitor& visit) {
  std::ranges::for_each(type.sizes, visit);
  std::ranges::for_each(type.strides, visit);
  visit(type.storage_offset);
}

void add_symbols(const ArgumentList& arguments, std::vector<std::uint32_t>& symbols) {
  for (const Argument& argument : arguments) {
    if (const auto* dim = argument.get<Dim>()) add_symbols(*dim, symbols);
    if (const auto* list = argument.get<ArgumentList>()) add_symbols(*list, symbols);
  }
}

void add_symbols(const std::vector<BoundSymbol>& calls, std::vector<std::uint32_t>& symbols) {
  for (const BoundSymbol& call : calls) {
    add_symbols(call.arguments, symbols);
    add_symbols(call.nested, symbols);
  }
}

using SizeMap = std::function<Dim(const Dim& dim)>;

void map_sizes(ArgumentList& arguments, const SizeMap& map) {
  for (Argument& argument : arguments) {
    if (const auto* dim = argument.get<Dim>()) argument = Argument(map(*dim));
    if (auto* list = std::get_if<ArgumentList>(&argument.content)) map_sizes(*list, map);
  }
}

void map_sizes(std::vector<BoundSymbol>& calls, const SizeMap& map) {
  for (BoundSymbol& call : calls) {
    map_sizes(call.arguments, map);
    map_sizes(call.nested, map);
  }
}

TensorType map_sizes(TensorType type, const SizeMap& map) {
  for (Dim& size : type.sizes) size = map(size);
  for (Dim& stride : type.strides) stride = map(stride);
  type.storage_offset = map(type.storage_offset);
  return type;
}

void map_sizes(Trace& trace, const SizeMap& map) {
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type != nullptr && has_symbols(*type)) trace.set_type(ValueId{i}, make_type(map_sizes(*type, map)));
  }
  map_sizes(trace.symbols, map);
  map_sizes(trace.outputs, map);
}

}  // namespace

std::vector<SymbolSource> symbol_sources(const Trace& trace) {
  std::vector<SymbolSource> sources;
  for (std::uint32_t i = 0; i < trace.inputs.size(); ++i) {
    const TensorType* type = trace.tensor_type(trace.inputs[i]);
    for (std::uint32_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      std::vector<std::uint32_t> symbols;
      add_symbols(type->sizes[d], symbols);
      const bool is_one = symbols.size() == 1;
      if (!is_one || std::ranges::find(sources, symbols[0], &SymbolSource::symbol) != sources.end()) continue;
      const auto factor = exact_quotient(type->sizes[d], Dim::symbol(symbols[0], 1));
      if (factor && factor->is_concrete() && factor->hint > 0) sources.push_back({symbols[0], i, d, factor->hint});
    }
  }
  std::ranges::sort(sources, {}, &SymbolSource::symbol);
  return sources;
}

std::vector<FoundSymbol> found_symbols(const Trace& trace) {
  std::vector<std::uint32_t> known;
  for (const SymbolSource& source : symbol_sources(trace)) known.push_back(source.symbol);
  std::vector<FoundSymbol> found;
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    const BoundSymbol& check = trace.symbols[i];
    if (check.op == nullptr || check.op->name != kShapeCheck || check.arguments.size() != 2) continue;
    const auto* value = check.arguments[0].get<ValueId>();
    const auto* sizes = check.arguments[1].get<ArgumentList>();
    for (std::uint32_t d = 0; value != nullptr && sizes != nullptr && d < sizes->size(); ++d) {
      const auto* dim = (*sizes)[d].get<Dim>();
      const auto symbol = dim == nullptr ? std::nullopt : symbol_of(*dim);
      if (!symbol || std::ranges::find(known, *symbol) != known.end()) continue;
      known.push_back(*symbol);
      found.push_back({*symbol, i, *value, d});
    }
  }
  return found;
}

void add_known_conditions(std::span<const Condition> conditions, Trace& trace) {
  if (conditions.empty()) return;
  const std::vector<SymbolSource> sources = symbol_sources(trace);
  for (const Condition& condition : conditions) {
    std::vector<std::uint32_t> symbols;
    add_symbols(condition, symbols);
    const bool is_known = std::ranges::all_of(symbols, [&](std::uint32_t symbol) {
      return std::ranges::find(sources, symbol, &SymbolSource::symbol) != sources.end();
    });
    if (is_known) trace.conditions.push_back(condition);
  }
}

std::vector<bool> gives_symbols(const Trace& trace) {
  std::vector<bool> gives(trace.inputs.size(), false);
  for (const SymbolSource& source : symbol_sources(trace)) gives[source.input] = true;
  return gives;
}

std::vector<std::uint32_t> symbols_of(const Trace& trace) {
  std::vector<std::uint32_t> symbols;
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type != nullptr) for_each_dim(*type, [&](const Dim& dim) { add_symbols(dim, symbols); });
  }
  add_symbols(trace.symbols, symbols);
  add_symbols(trace.outputs, symbols);
  for (const Condition& condition : trace.conditions) add_symbols(condition, symbols);
  return symbols;
}

std::vector<std::int64_t> traced_symbols(const Trace& trace) {
  std::vector<std::int64_t> values;
  for (const SymbolSource& source : symbol_sources(trace)) {
    values.resize(source.symbol + std::size_t{1}, 0);
    values[source.symbol] = trace.tensor_type(trace.inputs[source.input])->sizes[source.dim].hint / source.factor;
  }
  for (const FoundSymbol& found : found_symbols(trace)) {
    values.resize(std::max<std::size_t>(values.size(), found.symbol + std::size_t{1}), 0);
    values[found.symbol] = trace.tensor_type(found.value)->sizes[found.dim].hint;
  }
  return values;
}

Trace at_sizes(const Trace& trace, SymbolValues symbols) {
  Trace bound = trace;
  map_sizes(bound, [&](const Dim& dim) { return Dim(evaluate(dim, symbols)); });
  bound.conditions.clear();
  return bound;
}

void assume(Trace& trace, const Condition& condition) {
  const auto map = [&](const Dim& dim) { return simplify(dim, condition); };
  map_sizes(trace, map);
  for (Condition& earlier : trace.conditions) earlier = {earlier.kind, map(earlier.left), map(earlier.right)};
  if (!is_in_sizes(condition)) trace.conditions.push_back(condition);
}

}  // namespace thunder::ir
