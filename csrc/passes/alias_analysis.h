#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"
#include "ir/uses.h"

namespace thunder::passes {

/// A parameter that the operator writes to: marked in the schema, or the running statistics of a normalization.
[[nodiscard]] inline bool is_target(const ir::SchemaValue& parameter) {
  return parameter.mutated || parameter.name.starts_with("running_");
}

/// Calls `visit(ValueId)` for every value that the symbol may write to. An operator that writes or has an effect, and
/// whose schema names no target, may write to all its arguments. A primitive changes Python's state, not tensors,
/// unless it `mutates`.
template <typename Visitor>
void for_each_written(const ir::BoundSymbol& symbol, Visitor&& visit) {
  const bool has_effect = symbol.op->effect && symbol.op->style == ir::CallStyle::kTorchOperator;
  if (!symbol.op->mutates && !has_effect) return;
  bool names_target = false;
  for (const ir::SchemaValue& parameter : symbol.op->parameters) names_target = names_target || is_target(parameter);
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    if (!names_target || (i < symbol.op->parameters.size() && is_target(symbol.op->parameters[i]))) {
      ir::for_each_value(symbol.arguments[i], visit);
    }
  }
}

/// Whether an operator is no view, and its result lies in memory as its first argument does, with all that lies around
/// it there: the same strides, the same offset, and a storage as large.
[[nodiscard]] inline bool copies_memory(const ir::Operator& op) {
  return op.name.ends_with("_scatter") || op.name == "aten::copy";
}

/// Whether a symbol makes memory of its own, though the schema says that it may give a view: a cast to another dtype.
[[nodiscard]] bool is_surely_copy(const ir::Trace& trace, const ir::BoundSymbol& symbol);

/// Which values may share memory, anywhere in the trace: sets joined through views and in-place operators; a primitive
/// (a constant, a custom gradient) hands out memory that it does not own. Inputs are sets of their own, but for those
/// of which the trace says more (`memory_of_inputs`).
class AliasAnalysis {
 public:
  explicit AliasAnalysis(const ir::Trace& trace);

  /// The representative of the set; changes when sets are joined.
  [[nodiscard]] std::uint32_t set_of(ir::ValueId id) const;
  [[nodiscard]] bool may_alias(ir::ValueId a, ir::ValueId b) const { return set_of(a) == set_of(b); }
  /// Some symbol writes to the set.
  [[nodiscard]] bool is_written(ir::ValueId id) const { return facts_[set_of(id)].written; }
  [[nodiscard]] bool touches_input(ir::ValueId id) const { return facts_[set_of(id)].input; }
  [[nodiscard]] bool touches_output(ir::ValueId id) const { return facts_[set_of(id)].output; }
  /// The memory was made by an operator of the trace: it is no input's, no constant's.
  [[nodiscard]] bool is_own_memory(ir::ValueId id) const {
    return !facts_[set_of(id)].input && !facts_[set_of(id)].constant;
  }

  /// Some symbol's result depends on where a value of the set lies in its memory, or on how large that is.
  [[nodiscard]] bool is_position_read(ir::ValueId id) const { return facts_[set_of(id)].position_read; }

  void join(ir::ValueId a, ir::ValueId b);

  /// For each set the last symbol that reads or makes a value of it, or that waits for an asynchronous operation which
  /// does; ir::kNoPlace where the trace returns one, or nobody waits; zero where nothing does.
  [[nodiscard]] std::vector<std::uint32_t> last_uses(const ir::Trace& trace) const;
  /// The symbol that waits for asynchronous symbol `i`, for its last result; ir::kNoPlace: for some nobody waits.
  [[nodiscard]] std::uint32_t wait_for(const ir::Trace& trace, std::uint32_t i) const;

 private:
  struct Facts {
    bool written = false;
    bool input = false;
    bool output = false;
    bool constant = false;
    bool position_read = false;
  };

  void join_inputs(const ir::Trace& trace);
  void join_results(const ir::Trace& trace, const ir::BoundSymbol& symbol);

  mutable std::vector<std::uint32_t> parents_;
  std::vector<Facts> facts_;
};

}  // namespace thunder::passes
