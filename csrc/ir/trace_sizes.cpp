#include "ir/trace_sizes.h"

#include <algorithm>
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

void bind(ArgumentList& arguments, SymbolValues symbols) {
  for (Argument& argument : arguments) {
    if (const auto* dim = argument.get<Dim>()) argument = Argument(evaluate(*dim, symbols));
    if (auto* list = std::get_if<ArgumentList>(&argument.content)) bind(*list, symbols);
  }
}

void bind(std::vector<BoundSymbol>& calls, SymbolValues symbols) {
  for (BoundSymbol& call : calls) {
    bind(call.arguments, symbols);
    bind(call.nested, symbols);
  }
}

TensorType at_sizes(TensorType type, SymbolValues symbols) {
  for (Dim& size : type.sizes) size = evaluate(size, symbols);
  for (Dim& stride : type.strides) stride = evaluate(stride, symbols);
  type.storage_offset = evaluate(type.storage_offset, symbols);
  return type;
}

}  // namespace

std::vector<SymbolSource> symbol_sources(const Trace& trace) {
  std::vector<SymbolSource> sources;
  for (std::uint32_t i = 0; i < trace.inputs.size(); ++i) {
    const TensorType* type = trace.tensor_type(trace.inputs[i]);
    for (std::uint32_t d = 0; type != nullptr && d < type->sizes.size(); ++d) {
      const auto symbol = symbol_of(type->sizes[d]);
      if (symbol && std::ranges::find(sources, *symbol, &SymbolSource::symbol) == sources.end()) {
        sources.push_back({*symbol, i, d});
      }
    }
  }
  std::ranges::sort(sources, {}, &SymbolSource::symbol);
  return sources;
}

std::vector<std::uint32_t> symbols_of(const Trace& trace) {
  std::vector<std::uint32_t> symbols;
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type != nullptr) for_each_dim(*type, [&](const Dim& dim) { add_symbols(dim, symbols); });
  }
  add_symbols(trace.symbols, symbols);
  add_symbols(trace.outputs, symbols);
  return symbols;
}

Trace at_sizes(const Trace& trace, SymbolValues symbols) {
  Trace bound = trace;
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const TensorType* type = trace.tensor_type(ValueId{i});
    if (type != nullptr && has_symbols(*type)) bound.set_type(ValueId{i}, make_type(at_sizes(*type, symbols)));
  }
  bind(bound.symbols, symbols);
  bind(bound.outputs, symbols);
  return bound;
}

}  // namespace thunder::ir
