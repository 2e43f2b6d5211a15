#include "ir/verifier.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/printer.h"
#include "ir/trace_sizes.h"

namespace thunder::ir {
namespace {

class Verifier {
 public:
  Verifier(const Trace& trace, std::string_view where)
      : trace_(trace), where_(where), defined_(trace.value_count(), false) {}

  void run() {
    for (const ValueId input : trace_.inputs) define(input, "input", nullptr);
    check_sizes();
    for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
      const BoundSymbol& symbol = trace_.symbols[i];
      check(symbol);
      if (symbol.op->style == CallStyle::kReturn && i + 1 != trace_.symbols.size()) fail("returns too early", &symbol);
    }
    for (const Argument& output : trace_.outputs) {
      for_each_value(output, [&](ValueId id) { require_defined(id, "output", nullptr); });
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what, const BoundSymbol* symbol) const {
    std::string message = what + " in trace " + trace_.name();
    if (symbol != nullptr) {
      message += ", at: " + print(*symbol, trace_);
      if (symbol->location.file != nullptr) {
        message += " (" + *symbol->location.file + ":" + std::to_string(symbol->location.line) + ")";
      }
    }
    throw InternalError(std::string(where_), message);
  }

  [[nodiscard]] static std::string describe(const char* role, ValueId id) {
    return std::string(role) + " t" + std::to_string(index_of(id));
  }

  void require_known(ValueId id, const char* role, const BoundSymbol* symbol) const {
    if (index_of(id) >= trace_.value_count()) fail(describe(role, id) + " is no value of the trace", symbol);
    if (trace_.value(id).type == nullptr) fail(describe(role, id) + " has no type", symbol);
  }

  void require_defined(ValueId id, const char* role, const BoundSymbol* symbol) const {
    require_known(id, role, symbol);
    if (!defined_[index_of(id)]) fail(describe(role, id) + " is used before it is made", symbol);
  }

  void define(ValueId id, const char* role, const BoundSymbol* symbol) {
    require_known(id, role, symbol);
    if (defined_[index_of(id)]) fail(describe(role, id) + " is made twice", symbol);
    defined_[index_of(id)] = true;
  }

  /// Every symbol is the size of an input, or found by a check.
  void check_sizes() const {
    const std::vector<SymbolSource> sources = symbol_sources(trace_);
    const std::vector<FoundSymbol> found = found_symbols(trace_);
    for (const std::uint32_t symbol : symbols_of(trace_)) {
      const bool has_source = std::ranges::find(sources, symbol, &SymbolSource::symbol) != sources.end() ||
                              std::ranges::find(found, symbol, &FoundSymbol::symbol) != found.end();
      if (!has_source) fail("s" + std::to_string(symbol) + " is the size of no input", nullptr);
    }
    const std::vector<std::int64_t> traced = traced_symbols(trace_);
    for (const Condition& condition : trace_.conditions) {
      if (!holds(condition, traced))
        fail(to_string(condition) + " does not hold for the sizes that were traced", nullptr);
    }
  }

  void check_counts(const BoundSymbol& symbol) const {
    const Operator& op = *symbol.op;
    if (op.style == CallStyle::kReturn || op.style == CallStyle::kComment) {
      if (!symbol.results.empty()) fail("a return or comment gives results", &symbol);
      return;
    }
    if (symbol.arguments.size() != op.parameters.size()) {
      fail(op.name + " takes " + std::to_string(op.parameters.size()) + " arguments, got " +
               std::to_string(symbol.arguments.size()),
           &symbol);
    }
    if (symbol.results.size() != op.results.size()) {
      fail(op.name + " gives " + std::to_string(op.results.size()) + " results, got " +
               std::to_string(symbol.results.size()),
           &symbol);
    }
  }

  void check(const BoundSymbol& symbol) {
    if (symbol.op == nullptr) fail("a symbol has no operator", &symbol);
    check_counts(symbol);
    for (const Argument& argument : symbol.arguments) {
      for_each_value(argument, [&](ValueId id) { require_defined(id, "argument", &symbol); });
    }
    check_nested(symbol);
    for (const Argument& result : symbol.results) {
      for_each_value(result, [&](ValueId id) { define(id, "result", &symbol); });
    }
  }

  // Values made inside are visible inside only; the last nested operations may make the symbol's own results.
  void check_nested(const BoundSymbol& symbol) {
    for (const BoundSymbol& nested : symbol.nested) check(nested);
    for (const BoundSymbol& nested : symbol.nested) {
      for (const Argument& result : nested.results) {
        for_each_value(result, [&](ValueId id) { defined_[index_of(id)] = false; });
      }
    }
  }

  const Trace& trace_;
  std::string_view where_;
  std::vector<bool> defined_;
};

}  // namespace

void verify(const Trace& trace, std::string_view where) { Verifier(trace, where).run(); }

}  // namespace thunder::ir
