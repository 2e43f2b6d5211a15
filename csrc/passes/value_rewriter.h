#pragma once

#include <cstdint>
#include <vector>

#include "ir/substitution.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Walks a trace once and offers each symbol that gives one value, and only that, to a rule. The rule sees how the
/// arguments were made, and may rewrite the symbol, or put an earlier value in the place of its result.
class ValueRewriter {
 public:
  ValueRewriter(const ir::Trace& trace, const char* step, FindOperator find_operator);

  /// Changes `symbol` (its operator and arguments) as it likes, and returns a value equal to its result, or kNoValue.
  using Rule = ir::ValueId (*)(ir::BoundSymbol& symbol, const ValueRewriter& rewriter);
  /// `find_rule` gives the rule for an operator; null: none.
  [[nodiscard]] ir::Trace run(Rule (*find_rule)(const ir::Operator& op));

  /// The symbol that makes a value, as rewritten; null for an input and for kNoValue.
  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id) const;
  /// Null for kNoValue and for what is no tensor.
  [[nodiscard]] const ir::TensorType* type(ir::ValueId id) const { return result_.tensor_type(id); }
  /// The memory behind the value is never written to: it may be read later than it was.
  [[nodiscard]] bool is_constant_memory(ir::ValueId id) const { return !aliases_.is_written(id); }
  [[nodiscard]] const ir::Operator* find_operator(const char* name, const char* overload) const {
    return find_operator_(name, overload);
  }

 private:
  /// Whether `kept` may stand where `dropped` stood: writes and what the caller gets stay apart as they were.
  [[nodiscard]] bool may_stand_for(ir::ValueId kept, ir::ValueId dropped) const;
  /// The value is all of a memory that a symbol of the trace made for it.
  [[nodiscard]] bool is_all_of_own_memory(ir::ValueId id) const;

  const ir::Trace& trace_;
  ir::Trace result_;
  AliasAnalysis aliases_;
  ir::Substitution replaced_;
  FindOperator find_operator_;
  std::vector<std::uint32_t> makers_;  ///< value -> one more than the index of its symbol in `result_`
  std::vector<bool> is_output_;
  std::vector<bool> is_input_;
};

}  // namespace thunder::passes
