#include "ir/symbol_values.h"

#include <algorithm>

namespace thunder::ir {

std::vector<ValueId> distinct_values(const ArgumentList& arguments) {
  std::vector<ValueId> values;
  for (const Argument& argument : arguments) {
    for_each_value(argument, [&](ValueId id) {
      if (std::find(values.begin(), values.end(), id) == values.end()) values.push_back(id);
    });
  }
  return values;
}

std::vector<ValueId> flat_results(const BoundSymbol& symbol) {
  std::vector<ValueId> values;
  const auto add = [&](const Argument& argument) {
    const auto* id = argument.get<ValueId>();
    values.push_back(id != nullptr ? *id : kNoValue);
  };
  for (const Argument& result : symbol.results) {
    if (const auto* list = result.get<ArgumentList>()) {
      std::for_each(list->begin(), list->end(), add);
    } else {
      add(result);
    }
  }
  return values;
}

}  // namespace thunder::ir
