#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/trace.h"
#include "ir/value_names.h"

namespace thunder::ir {

/// Writes the values, arguments and calls of a trace as Python and remembers which names they need.
class StatementWriter {
 public:
  explicit StatementWriter(const Trace& trace);

  void write_text(std::string_view segment) { text_ += segment; }
  void write_value(ValueId id) { names_.append(text_, id); }
  void write_argument(const Argument& argument);
  /// `(t4, t5)`, with the comma that a single element needs.
  void write_tuple(const ArgumentList& elements);
  /// `t3 = torch.ops.aten.relu.default(t2)`
  void write_statement(const BoundSymbol& symbol);
  /// `t3: "cpu f32[2, 16]"`
  void write_type(ValueId id);
  /// The types of the results and the symbol's own comment, as comments behind the statement.
  void write_remarks(const BoundSymbol& symbol);

  [[nodiscard]] bool calls_torch() const { return calls_torch_; }
  [[nodiscard]] bool calls_primitives() const { return calls_primitives_; }
  /// By index into the objects of the trace's context.
  [[nodiscard]] const std::vector<bool>& object_is_used() const { return object_is_used_; }
  /// The text that was written since the last call.
  [[nodiscard]] std::string take_text();

 private:
  void write_callee(const Operator& op);
  void write_call(const BoundSymbol& symbol);
  void write_named_argument(std::string_view name, const Argument& argument);
  void write_target(const Argument& result);

  const Trace& trace_;
  ValueNames names_;
  std::string text_;
  std::vector<bool> object_is_used_;
  bool calls_torch_ = false;
  bool calls_primitives_ = false;
};

}  // namespace thunder::ir
