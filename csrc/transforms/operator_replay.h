#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/equality.h"
#include "ir/substitution.h"
#include "ir/trace.h"
#include "tracer/recorder.h"
#include "transforms/claimed.h"
#include "transforms/rules.h"

namespace thunder::transforms {

/// The derivative of one operation for given argument metadata: the operation replayed once with PyTorch's autograd
/// layer, or the rule that wins over it, recorded below autograd. `trace` holds what the forward executes, then, for
/// each set of cotangents asked for, what the backward executes; values are shared, so a value of the forward that a
/// backward uses is a saved one.
class OperatorReplay {
 public:
  /// `types` are those of the distinct values among the symbol's arguments, in order of first appearance.
  /// `is_inside`: as in `RuleCall`.
  OperatorReplay(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values, const ir::Trace& source,
                 bool is_inside);

  struct Backward {
    std::size_t begin = 0;  ///< symbols of the trace
    std::size_t end = 0;
    std::vector<ir::ValueId> cotangents;  ///< one for each result; kNoValue where there is none
    std::vector<ir::ValueId> gradients;   ///< one for each input; kNoValue where it is zero or not needed
  };

  /// The backward for cotangents of these types (null: none for that result). `again`: it will be differentiated.
  const Backward& backward(std::span<const ir::TypePtr> cotangent_types, bool again = false);

  [[nodiscard]] const ir::Trace& trace() { return recorder_.trace(); }
  [[nodiscard]] std::size_t forward_end() const { return forward_end_; }
  [[nodiscard]] const std::vector<ir::ValueId>& inputs() const { return input_values_; }
  /// One for each tensor among the results, in order; kNoValue for undefined ones.
  [[nodiscard]] const std::vector<ir::ValueId>& results() const { return result_values_; }
  /// Whether a value of the trace was made by the forward, or is an input of it.
  [[nodiscard]] bool is_of_forward(ir::ValueId id) const { return index_of(id) < forward_value_count_; }
  /// The row of `rules.h` that made both halves; null: derived.
  [[nodiscard]] const GradRule* rule() const { return rule_call_.rule; }
  /// The executor that runs the operation, which then stands in the forward as the program called it.
  [[nodiscard]] const std::optional<ClaimedOperation>& claimed() const { return claimed_; }

 private:
  void append_results(std::span<const c10::IValue> results);
  /// Puts the operation itself into the forward, behind what its derivative was taken of. The backward reads its
  /// results.
  void keep_operation(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values, const ir::Trace& source);
  [[nodiscard]] std::vector<at::Tensor> gradients_by_rule(std::vector<at::Tensor> cotangents);
  [[nodiscard]] std::vector<at::Tensor> gradients_by_autograd(const std::vector<at::Tensor>& outputs,
                                                              const std::vector<at::Tensor>& cotangents, bool again);

  /// Gradients by `backward` (opaque_backward.h).
  [[nodiscard]] std::vector<at::Tensor> gradients_by_backward(const c10::OperatorHandle& backward,
                                                              const std::vector<at::Tensor>& outputs,
                                                              const std::vector<at::Tensor>& cotangents) const;
  /// Gradients that raise `message` when they are computed.
  [[nodiscard]] std::vector<at::Tensor> missing_gradients(const std::vector<at::Tensor>& cotangents,
                                                          const std::string& message) const;

  tracer::Recorder recorder_;
  std::string operator_;  ///< with the line that called it first, for errors
  std::optional<c10::OperatorHandle> handle_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> results_;
  std::vector<ir::ValueId> input_values_;
  std::vector<ir::ValueId> result_values_;
  std::size_t forward_end_ = 0;
  std::size_t forward_value_count_ = 0;
  RuleCall rule_call_;
  std::optional<ClaimedOperation> claimed_;
  ir::Substitution kept_{0};  ///< values that were differentiated -> results of the operation itself
  std::unordered_map<ir::CallKey, Backward, ir::CallKey::Hash> backwards_;
};

/// Replays remembered by operator, constants and argument metadata.
class ReplayTable {
 public:
  explicit ReplayTable(bool is_inside) : is_inside_(is_inside) {}
  OperatorReplay& find(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values, const ir::Trace& source);

 private:
  bool is_inside_;
  std::unordered_map<ir::CallKey, std::unique_ptr<OperatorReplay>, ir::CallKey::Hash> replays_;
};

}  // namespace thunder::transforms
