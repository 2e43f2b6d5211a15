#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ir/substitution.h"
#include "ir/trace.h"

namespace thunder::ir {

/// Changes to a trace, collected and then made at once. Positions and values are those of the trace as it was, however
/// much was changed before; values that were inserted may be used behind the place where they are made.
class TraceEdit {
 public:
  /// `trace` must outlive the edit.
  TraceEdit(const Trace& trace, std::string step);

  /// Puts the symbols of `part` in front of the symbol at `position` (or at the end), behind what was put there before.
  /// `inputs` stand in the place of its inputs; returns its outputs. `location`: for symbols without one.
  [[nodiscard]] ArgumentList insert(std::size_t position, const Trace& part, std::span<const Argument> inputs,
                                    const SourceLocation& location);
  void insert(std::size_t position, BoundSymbol symbol);
  ValueId add_value(TypePtr type) { return result_.add_value(std::move(type)); }
  void remove(std::size_t position);
  /// The trace's own symbols, and its outputs, take `to` in the place of `from`. So do inserted symbols where `from` is
  /// no longer made. Throws UserError where `to` is `from`, or what `from` stands for.
  void substitute(ValueId from, Argument to);
  void set_output(std::size_t index, Argument value);
  /// A new value as input `index`. Symbols that read the old one need a substitute.
  ValueId set_input(std::size_t index, TypePtr type);
  /// A new value as the last input.
  ValueId add_input(TypePtr type, std::string name = {});
  /// Takes an input away. Symbols that read it need a substitute.
  void remove_input(std::size_t index);
  /// Returns one value more, as the last output.
  void add_output(Argument value) { result_.outputs.push_back(std::move(value)); }
  void remove_output(std::size_t index);

  /// The types of values, inserted ones too.
  [[nodiscard]] const Trace& values() const { return result_; }

  /// The changed trace; the edit is used up. It is as wrong as what was asked for: verify it.
  [[nodiscard]] Trace finish();

 private:
  void apply(ArgumentList& arguments, bool is_inserted) const;
  void mark_gone(const BoundSymbol& symbol);

  const Trace& trace_;
  Trace result_;
  std::map<std::size_t, std::vector<BoundSymbol>> inserted_;  ///< by the position that they come before
  std::vector<bool> removed_;
  std::set<std::size_t> removed_inputs_;
  std::set<std::size_t> removed_outputs_;
  std::vector<bool> gone_;  ///< values that nothing makes any longer
  Substitution replaced_;
};

}  // namespace thunder::ir
