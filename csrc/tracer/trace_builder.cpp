#include "tracer/trace_builder.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "ir/symbol_values.h"
#include "tracer/operators.h"

namespace thunder::tracer {

TraceBuilder::Mark::Mark(TraceBuilder& builder) : builder_(builder), position_(builder.trace_.symbols.size()) {
  builder.marks_.push_back(this);
}

ir::SourceLocation TraceBuilder::location() const {
  const bool is_replayed = replayed_location != nullptr && replayed_location->file != nullptr;
  return is_replayed ? *replayed_location : host_.locate();
}

ir::BoundSymbol& TraceBuilder::add(ir::BoundSymbol symbol) {
  if (facts_) facts_ = *facts_ | operators::facts_of(*symbol.op);
  return trace_.add(std::move(symbol));
}

ir::BoundSymbol& TraceBuilder::add_here(ir::BoundSymbol symbol) {
  symbol.location = location();
  return add(std::move(symbol));
}

namespace {

bool is_constant(const ir::BoundSymbol& symbol) { return symbol.op == tensor_constant_operator(); }

}  // namespace

std::vector<ir::BoundSymbol> TraceBuilder::cut(std::size_t begin) {
  facts_.reset();
  const auto first = trace_.symbols.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto middle = std::stable_partition(first, trace_.symbols.end(), is_constant);
  std::vector<ir::BoundSymbol> symbols(std::make_move_iterator(middle), std::make_move_iterator(trace_.symbols.end()));
  trace_.symbols.erase(middle, trace_.symbols.end());
  return symbols;
}

std::size_t TraceBuilder::operations_from(std::size_t begin) const {
  const auto symbols = std::span(trace_.symbols).subspan(begin);
  return symbols.size() - static_cast<std::size_t>(std::ranges::count_if(symbols, is_constant));
}

std::size_t TraceBuilder::begin_of_last(std::size_t count) const {
  std::size_t begin = trace_.symbols.size();
  while (count > 0) {
    THUNDER_CHECK(begin > 0, "tracer", "a trace has fewer operations");
    if (!is_constant(trace_.symbols[--begin])) --count;
  }
  return begin;
}

std::size_t TraceBuilder::maker_of(ir::ValueId value) const {
  const auto made = std::ranges::find_if(trace_.symbols, [&](const ir::BoundSymbol& symbol) {
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    return std::ranges::find(results, value) != results.end();
  });
  return static_cast<std::size_t>(made - trace_.symbols.begin());
}

ir::ValueId TraceBuilder::rename_result(std::size_t position, ir::ValueId value) {
  const ir::ValueId made = trace_.add_value(trace_.value(value).type);
  for (ir::Argument& result : trace_.symbols[position].results) {
    ir::for_each_value(result, [&](ir::ValueId& id) { id = id == value ? made : id; });
  }
  return made;
}

void TraceBuilder::insert(std::size_t position, ir::BoundSymbol symbol) {
  trace_.symbols.insert(trace_.symbols.begin() + static_cast<std::ptrdiff_t>(position), std::move(symbol));
  ++edits_;
}

void TraceBuilder::move_to_front(std::size_t begin) {
  const auto first = trace_.symbols.begin() + static_cast<std::ptrdiff_t>(begin);
  std::rotate(trace_.symbols.begin(), first, trace_.symbols.end());
  ++edits_;
}

void TraceBuilder::replace(ir::ValueId result, std::vector<ir::BoundSymbol> symbols) {
  replacements_.emplace(index_of(result), std::move(symbols));
}

void TraceBuilder::settle() {
  if (replacements_.empty()) return;
  std::vector<ir::BoundSymbol> old = std::exchange(trace_.symbols, {});
  facts_.reset();
  std::vector<std::size_t> shifts(marks_.size());
  for (std::size_t i = 0; i < old.size(); ++i) {
    for (std::size_t m = 0; m < marks_.size(); ++m) {
      if (marks_[m]->position_ == i) shifts[m] = trace_.symbols.size();
    }
    std::uint32_t first = index_of(ir::kNoValue);
    for (const ir::ValueId id : ir::flat_results(old[i])) {
      if (first == index_of(ir::kNoValue)) first = index_of(id);
    }
    const auto found = replacements_.find(first);
    if (found == replacements_.end()) {
      trace_.symbols.push_back(std::move(old[i]));
      continue;
    }
    for (ir::BoundSymbol& symbol : found->second) trace_.symbols.push_back(std::move(symbol));
  }
  for (std::size_t m = 0; m < marks_.size(); ++m) {
    marks_[m]->position_ = marks_[m]->position_ >= old.size() ? trace_.symbols.size() : shifts[m];
  }
  replacements_.clear();
  ++edits_;
}

bool TraceBuilder::has_any(operators::FactSet facts) {
  if (!facts_) {
    facts_.emplace();
    for (const ir::BoundSymbol& symbol : trace_.symbols) facts_ = *facts_ | operators::facts_of(*symbol.op);
  }
  return facts_->has_any(facts);
}

ir::Trace TraceBuilder::finish(ir::ArgumentList outputs) {
  trace_.outputs = std::move(outputs);
  facts_ = operators::FactSet();
  return std::exchange(trace_, trace_.blank());
}

}  // namespace thunder::tracer
