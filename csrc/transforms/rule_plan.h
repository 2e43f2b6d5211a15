#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/trace.h"
#include "transforms/rules.h"

namespace thunder::transforms {

/// A rule that was recorded as one program, in two: `forward` takes the operation's tensors and gives its results, then
/// what is saved; `backward` takes what is saved, then cotangents, and gives gradients.
struct RulePlan {
  ir::Trace forward;
  ir::Trace backward;
  std::vector<ir::TypePtr> results;
  std::vector<std::size_t> cotangents;  ///< for each cotangent that `backward` takes, which result it is of
  std::vector<std::size_t> targets;     ///< for each gradient, which of the operation's tensors it is of
};

/// Cuts a recorded rule where it first needs a cotangent. The inputs of `rule` are the operation's tensors, then one
/// cotangent for each of `cotangents`; its outputs are the results, then one gradient for each of `targets`. Throws
/// UserError when a result depends on a cotangent.
[[nodiscard]] RulePlan make_plan(const ir::Trace& rule, std::size_t result_count, std::vector<std::size_t> cotangents,
                                 std::vector<std::size_t> targets);

/// The tensors among an operation's arguments, also in lists, without numbers that stand where a tensor may.
[[nodiscard]] Tensors tensors_of_rule(std::span<const c10::IValue> arguments);
/// The arguments with these in their place.
[[nodiscard]] std::vector<c10::IValue> with_tensors_of_rule(std::span<const c10::IValue> arguments,
                                                            std::span<const at::Tensor> tensors);

/// The two functions of a `GradRule` whose `RuleCall::plan` is a RulePlan.
[[nodiscard]] Tensors run_forward(RuleCall& call, const RulePlan& plan);
void run_backward(RuleCall& call, const RulePlan& plan);

}  // namespace thunder::transforms
