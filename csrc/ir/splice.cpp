#include "ir/splice.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "ir/substitution.h"

namespace thunder::ir {
namespace {

class Splicer {
 public:
  Splicer(Trace& into, const Trace& from)
      : into_(into), from_(from), values_(from.value_count()), same_context_(into.context() == from.context()) {}

  ArgumentList run(std::span<const Argument> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) values_.set(from_.inputs[i], inputs[i]);
    ArgumentList outputs = from_.outputs;
    into_.symbols.reserve(into_.symbols.size() + from_.symbols.size());
    for (const BoundSymbol& symbol : from_.symbols) {
      if (symbol.op->style == CallStyle::kReturn) {
        outputs = symbol.arguments;
        break;
      }
      make_results(symbol);
      BoundSymbol& copy = into_.add(symbol);
      values_.apply(copy);
      if (!same_context_) adopt(copy);
    }
    values_.apply(outputs);
    if (!same_context_) adopt(outputs);
    return outputs;
  }

 private:
  void make_results(const BoundSymbol& symbol) {
    for (const Argument& result : symbol.results) {
      for_each_value(result, [this](ValueId id) {
        if (values_.find(id) != nullptr) return;  // made by a nested operation and again by the one around it
        const Value& value = from_.value(id);
        values_.set(id, into_.add_value(value.type, value.name));
      });
    }
    for (const BoundSymbol& nested : symbol.nested) make_results(nested);
  }

  void adopt(ArgumentList& arguments) {
    for (Argument& argument : arguments) {
      if (const auto* object = argument.get<ObjectConstant>()) {
        argument = into_.context()->add_object(from_.context()->objects[object->index]);
      } else if (auto* list = std::get_if<ArgumentList>(&argument.content)) {
        adopt(*list);
      }
    }
  }

  void adopt(BoundSymbol& symbol) {
    if (symbol.location.file != nullptr) symbol.location.file = into_.context()->intern(*symbol.location.file);
    adopt(symbol.arguments);
    for (BoundSymbol& nested : symbol.nested) adopt(nested);
  }

  Trace& into_;
  const Trace& from_;
  Substitution values_;
  bool same_context_;
};

}  // namespace

ArgumentList splice(Trace& into, const Trace& from, std::span<const Argument> inputs) {
  THUNDER_CHECK(
      inputs.size() == from.inputs.size(), "ir/splice",
      from.name() + " takes " + std::to_string(from.inputs.size()) + " inputs, got " + std::to_string(inputs.size()));
  THUNDER_CHECK(&into != &from, "ir/splice", "a trace cannot be spliced into itself");
  return Splicer(into, from).run(inputs);
}

}  // namespace thunder::ir
