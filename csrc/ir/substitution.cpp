#include "ir/substitution.h"

namespace thunder::ir {

void Substitution::apply(Argument& argument) const {
  if (const auto* id = argument.get<ValueId>()) {
    if (const Argument* replacement = find(*id)) argument = *replacement;
  } else if (auto* list = std::get_if<ArgumentList>(&argument.content)) {
    apply(*list);
  }
}

void Substitution::apply(ArgumentList& arguments) const {
  for (Argument& argument : arguments) apply(argument);
}

void Substitution::apply(BoundSymbol& symbol) const {
  apply(symbol.arguments);
  apply(symbol.results);
  for (BoundSymbol& nested : symbol.nested) apply(nested);
}

}  // namespace thunder::ir
