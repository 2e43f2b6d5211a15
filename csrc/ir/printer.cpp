#include "ir/printer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/python_text.h"
#include "ir/statement_writer.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "ir/uses.h"

namespace thunder::ir {
namespace {

/// `model.py` of a path, with the folder it lies in.
std::string_view last_two_components(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  const std::size_t before = path.rfind('/', slash - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

class ProgramPrinter {
 public:
  ProgramPrinter(const Trace& trace, const PrintOptions& options) : trace_(trace), options_(options), writer_(trace) {}

  [[nodiscard]] std::string print() {
    write_body();
    const std::string body = writer_.take_text();
    write_header();
    return writer_.take_text() + body;
  }

 private:
  void write_header();
  void write_body();
  void write_location(const SourceLocation& location);
  void write_block(const BoundSymbol& symbol, std::size_t depth);
  void write_nested(const BoundSymbol& symbol, std::size_t depth);
  void write_deletions(std::size_t place, const Uses& uses);
  /// Writes the symbols that the check at this place finds, and the conditions on them.
  void write_found(std::size_t check);
  /// Writes the conditions that depend on what this check finds, and no later one; without one, on sizes of inputs
  /// alone.
  void write_conditions(std::optional<std::size_t> check);

  const Trace& trace_;
  const PrintOptions& options_;
  StatementWriter writer_;
  SourceLocation printed_location_;
  std::vector<FoundSymbol> found_ = found_symbols(trace_);  ///< in the order of the checks
};

// Torch operators run without autograd: a trace holds its backward explicitly. A prologue checks the mode it finds.
void ProgramPrinter::write_header() {
  std::string header = "# ";
  python::append_comment_text(header, trace_.name());
  for (std::size_t i = 0; i < trace_.history().size(); ++i) {
    header += i == 0 ? ": " : "; ";
    python::append_comment_text(header, trace_.history()[i]);
  }
  header += "\nimport torch\n";
  if (writer_.calls_primitives()) header += "from thunder import prims\n";
  const std::vector<bool>& used = writer_.object_is_used();
  if (std::ranges::find(used, true) != used.end()) header += '\n';
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    header += "# object" + std::to_string(i) + ": ";
    python::append_comment_text(header, trace_.context()->objects[i].description);
    header += '\n';
  }
  header += writer_.calls_torch() ? "\n@torch.no_grad()\ndef " : "\ndef ";
  writer_.write_text(header);
  writer_.write_text(python::make_identifier(trace_.name()));
  writer_.write_text("(");
  for (std::size_t i = 0; i < trace_.inputs.size(); ++i) {
    if (i > 0) writer_.write_text(", ");
    writer_.write_value(trace_.inputs[i]);
  }
  writer_.write_text("):\n");
  for (const ValueId input : trace_.inputs) {
    writer_.write_text("  # ");
    writer_.write_type(input);
    writer_.write_text("\n");
  }
  for (const SymbolSource& source : symbol_sources(trace_)) {
    writer_.write_text("  s" + std::to_string(source.symbol) + " = ");
    writer_.write_value(trace_.inputs[source.input]);
    const std::string divided = source.factor == 1 ? "" : " // " + std::to_string(source.factor);
    writer_.write_text(".shape[" + std::to_string(source.dim) + "]" + divided + "\n");
  }
  write_conditions(std::nullopt);
}

void ProgramPrinter::write_conditions(std::optional<std::size_t> check) {
  for (const Condition& condition : trace_.conditions) {
    std::vector<std::uint32_t> symbols;
    add_symbols(condition, symbols);
    std::optional<std::size_t> last;
    for (const FoundSymbol& found : found_) {
      if (std::ranges::find(symbols, found.symbol) != symbols.end()) last = found.check;
    }
    if (last == check) writer_.write_text("  assert " + to_string(condition) + "\n");
  }
}

void ProgramPrinter::write_found(std::size_t check) {
  bool is_any = false;
  for (const FoundSymbol& found : found_) {
    if (found.check != check) continue;
    is_any = true;
    writer_.write_text("  s" + std::to_string(found.symbol) + " = ");
    writer_.write_value(found.value);
    writer_.write_text(".shape[" + std::to_string(found.dim) + "]\n");
  }
  if (is_any) write_conditions(check);
}

void ProgramPrinter::write_location(const SourceLocation& location) {
  if (!options_.locations || location.file == nullptr || location == printed_location_) return;
  printed_location_ = location;
  std::string text = "  # ";
  python::append_comment_text(text, last_two_components(*location.file));
  text += ':';
  python::append_literal(text, std::int64_t{location.line});
  text += '\n';
  writer_.write_text(text);
}

void ProgramPrinter::write_nested(const BoundSymbol& symbol, std::size_t depth) {
  for (const BoundSymbol& nested : symbol.nested) {
    writer_.write_text(std::string(2 * depth, ' '));
    writer_.write_text("# ");
    writer_.write_statement(nested);
    writer_.write_remarks(nested);
    writer_.write_text("\n");
    write_nested(nested, depth + 1);
  }
}

void ProgramPrinter::write_block(const BoundSymbol& symbol, std::size_t depth) {
  for (const BoundSymbol& nested : symbol.nested) {
    writer_.write_text(std::string(2 * depth, ' '));
    writer_.write_statement(nested);
    writer_.write_remarks(nested);
    writer_.write_text("\n");
    if (nested.op->style == CallStyle::kBlock) write_block(nested, depth + 1);
  }
}

void ProgramPrinter::write_deletions(std::size_t place, const Uses& uses) {
  if (trace_.symbols[place].op->style == CallStyle::kComment) return;
  std::vector<ValueId> named = distinct_values(trace_.symbols[place].arguments);
  for (const ValueId id : distinct_values(trace_.symbols[place].results)) named.push_back(id);
  std::string_view separator = "  del ";
  for (const ValueId id : named) {
    if (uses.last_use(id) != place) continue;
    writer_.write_text(std::exchange(separator, ", "));
    writer_.write_value(id);
  }
  if (separator == ", ") writer_.write_text("\n");
}

void ProgramPrinter::write_body() {
  const Uses uses(trace_);
  bool returned = false;
  for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
    const BoundSymbol& symbol = trace_.symbols[i];
    write_location(symbol.location);
    write_found(i);
    writer_.write_text("  ");
    writer_.write_statement(symbol);
    writer_.write_remarks(symbol);
    writer_.write_text("\n");
    if (symbol.op->style == CallStyle::kBlock) {
      write_block(symbol, 2);
    } else if (options_.nested) {
      write_nested(symbol, 2);
    }
    returned = returned || symbol.op->style == CallStyle::kReturn;
    if (options_.deletions && !returned) write_deletions(i, uses);
  }
  if (returned) return;
  writer_.write_text("  return ");
  writer_.write_tuple(trace_.outputs);
  writer_.write_text("\n");
}

}  // namespace

std::string print(const Trace& trace, const PrintOptions& options) { return ProgramPrinter(trace, options).print(); }

std::string print(const BoundSymbol& symbol, const Trace& trace) {
  StatementWriter writer(trace);
  writer.write_statement(symbol);
  writer.write_remarks(symbol);
  return writer.take_text();
}

}  // namespace thunder::ir
