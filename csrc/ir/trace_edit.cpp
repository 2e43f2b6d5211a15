#include "ir/trace_edit.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "ir/splice.h"

namespace thunder::ir {

TraceEdit::TraceEdit(const Trace& trace, std::string step)
    : trace_(trace),
      result_(trace.empty_copy(std::move(step))),
      removed_(trace.symbols.size(), false),
      gone_(trace.value_count(), false),
      replaced_(trace.value_count()) {}

ArgumentList TraceEdit::insert(std::size_t position, const Trace& part, std::span<const Argument> inputs,
                               const SourceLocation& location) {
  ArgumentList outputs = splice(result_, part, inputs);
  for (BoundSymbol& symbol : result_.symbols) {
    if (symbol.location.file == nullptr) symbol.location = location;
    insert(position, std::move(symbol));
  }
  result_.symbols.clear();
  return outputs;
}

void TraceEdit::insert(std::size_t position, BoundSymbol symbol) {
  THUNDER_CHECK(position <= trace_.symbols.size(), "ir/trace_edit", "no such position in trace " + trace_.name());
  inserted_[position].push_back(std::move(symbol));
}

void TraceEdit::mark_gone(const BoundSymbol& symbol) {
  for (const Argument& result : symbol.results) {
    for_each_value(result, [&](ValueId id) { gone_[index_of(id)] = true; });
  }
}

void TraceEdit::remove(std::size_t position) {
  removed_.at(position) = true;
  mark_gone(trace_.symbols[position]);
}

void TraceEdit::substitute(ValueId from, Argument to) {
  for (const Argument* next = &to; next != nullptr;) {
    const auto* id = next->get<ValueId>();
    if (id != nullptr && *id == from) {
      throw UserError(ErrorKind::kValue, "substitute: expected another value, got one that would stand for itself");
    }
    next = id == nullptr ? nullptr : replaced_.find(*id);
  }
  replaced_.set(from, std::move(to));
}

void TraceEdit::set_output(std::size_t index, Argument value) { result_.outputs.at(index) = std::move(value); }

ValueId TraceEdit::set_input(std::size_t index, TypePtr type) {
  ValueId& input = result_.inputs.at(index);
  if (index_of(input) < gone_.size()) gone_[index_of(input)] = true;
  return input = result_.add_value(std::move(type), trace_.value(trace_.inputs.at(index)).name);
}

ValueId TraceEdit::add_input(TypePtr type, std::string name) {
  // No input lies in its memory.
  if (!result_.memory_of_inputs.empty()) {
    result_.memory_of_inputs.push_back(std::ranges::max(result_.memory_of_inputs) + 1);
  }
  return result_.add_input(std::move(type), std::move(name));
}

void TraceEdit::remove_input(std::size_t index) {
  const ValueId input = result_.inputs.at(index);
  if (index_of(input) < gone_.size()) gone_[index_of(input)] = true;
  removed_inputs_.insert(index);
}

void TraceEdit::remove_output(std::size_t index) {
  static_cast<void>(result_.outputs.at(index));
  removed_outputs_.insert(index);
}

void TraceEdit::apply(ArgumentList& arguments, bool is_inserted) const {
  for (Argument& argument : arguments) {
    if (auto* list = std::get_if<ArgumentList>(&argument.content)) {
      apply(*list, is_inserted);
      continue;
    }
    // A substitute may have one itself.
    for (const ValueId* id = argument.get<ValueId>(); id != nullptr; id = argument.get<ValueId>()) {
      const Argument* replacement = replaced_.find(*id);
      const bool is_gone = index_of(*id) < gone_.size() && gone_[index_of(*id)];
      if (replacement == nullptr || (is_inserted && !is_gone)) break;
      argument = Argument(*replacement);
    }
  }
}

Trace TraceEdit::finish() {
  const auto place_inserted = [&](std::size_t position) {
    const auto found = inserted_.find(position);
    if (found == inserted_.end()) return;
    for (BoundSymbol& symbol : found->second) {
      apply(symbol.arguments, /*is_inserted=*/true);
      result_.add(std::move(symbol));
    }
  };
  for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
    place_inserted(i);
    if (removed_[i]) continue;
    apply(result_.add(trace_.symbols[i]).arguments, /*is_inserted=*/false);
  }
  place_inserted(trace_.symbols.size());
  apply(result_.outputs, /*is_inserted=*/false);
  const auto erase_from = [](auto& list, std::size_t index) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (const std::size_t index : std::views::reverse(removed_inputs_)) {
    erase_from(result_.inputs, index);
    if (!result_.memory_of_inputs.empty()) erase_from(result_.memory_of_inputs, index);
  }
  for (const std::size_t index : std::views::reverse(removed_outputs_)) erase_from(result_.outputs, index);
  return std::move(result_);
}

}  // namespace thunder::ir
