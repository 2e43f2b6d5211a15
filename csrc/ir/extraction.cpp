#include "ir/extraction.h"

#include <utility>

#include "ir/substitution.h"
#include "ir/symbol_values.h"

namespace thunder::ir {
namespace {

void name_results(const BoundSymbol& symbol, const Trace& source, Substitution& values, Trace& trace) {
  for (const ValueId id : flat_results(symbol)) {
    if (id != kNoValue && values.find(id) == nullptr) values.set(id, trace.add_value(source.value(id).type));
  }
  for (const BoundSymbol& nested : symbol.nested) name_results(nested, source, values, trace);
}

}  // namespace

Trace extract(const BoundSymbol& symbol, const Trace& source, std::string name) {
  Trace trace(std::move(name), source.context());
  Substitution values(source.value_count());
  for (const ValueId id : distinct_values(symbol.arguments)) values.set(id, trace.add_input(source.value(id).type));
  name_results(symbol, source, values, trace);
  values.apply(trace.add(symbol));
  for (const ValueId id : flat_results(trace.symbols[0])) {
    trace.outputs.push_back(id == kNoValue ? Argument() : Argument(id));
  }
  return trace;
}

Trace empty_part(const Trace& source, std::string step) {
  Trace part = source.empty_copy(std::move(step));
  part.inputs.clear();
  part.memory_of_inputs.clear();
  part.conditions.clear();
  part.outputs.clear();
  return part;
}

}  // namespace thunder::ir
