#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Rules that win over derived ones.
//
// `grad` differentiates one operation at a time. Where this table has a row for the operator whose `applies` agrees,
// the row's two functions are recorded; otherwise PyTorch's autograd layer is. Either way the operation is replayed on
// trace tensors, below autograd, and remembered by operator, constants and metadata (`operator_replay.h`). So a rule is
// written once for all shapes, as plain ATen calls:
//
//   Tensors forward(RuleCall& call) {              // gives the operator's results, with eager's numbers
//     at::Tensor y = at::exp(call.tensor(0));
//     call.saved = {y};                            // values for backward alone go here; whatever a backward reads of
//     return {y};                                  // the forward is a saved value, and rematerialization may move it
//   }
//   void backward(RuleCall& call) {                // runs for each set of cotangents that occurs
//     call.give(call.tensor(0), call.cotangent(0) * call.saved[0]);
//   }
//
// Both run with gradients off and must not write in place: passes do that. A row goes into the list of its area
// (`rules_<area>.cpp`), with a reason, which `thunder.inspect.rules` shows. Write a row only where the derived rule is
// wrong, refuses, or saves or computes more than needed; `applies` must refuse what the row was not written for.

namespace thunder::transforms {

struct GradRule;
using Tensors = std::vector<at::Tensor>;

/// One operation that a rule differentiates: its arguments, what the forward leaves for the backward, and gradients.
struct RuleCall {
  const GradRule* rule = nullptr;
  bool is_inside =
      false;  ///< a program differentiates itself: a rule writes to no input, as data may be read behind it
  std::vector<c10::IValue> arguments;  ///< one for each parameter of the operator
  Tensors saved;                       ///< from forward to backward
  std::shared_ptr<const void> plan;    ///< likewise, of rules that are made at run time
  Tensors cotangents;                  ///< one for each tensor result; undefined: zero

  /// Argument `i` as a tensor; undefined for None.
  [[nodiscard]] at::Tensor tensor(std::size_t i) const;
  [[nodiscard]] at::Tensor cotangent(std::size_t i) const { return cotangents.at(i); }
  /// Whether the gradient of argument `i` is asked for.
  [[nodiscard]] bool needs_gradient(std::size_t i) const { return tensor(i).defined() && tensor(i).requires_grad(); }
  /// Adds to the gradient of `target`, one of the tensors among the arguments (also in a list). The gradient is summed
  /// over what was broadcast, and takes the target's dtype. An undefined one is zero.
  void give(const at::Tensor& target, at::Tensor gradient);

  Tensors targets;
  Tensors gradients;  ///< one for each of `targets`
};

struct GradRule {
  std::string_view op;                    ///< `aten::prod`
  std::string_view overload;              ///< `dim_int`; empty is the default overload
  std::string_view reason;                ///< why it wins over the derived rule
  bool (*applies)(const RuleCall& call);  ///< null: always
  Tensors (*forward)(RuleCall& call);     ///< one for each tensor result
  void (*backward)(RuleCall& call);       ///< gives gradients
  const void* state = nullptr;            ///< for rows that are made at run time
};

}  // namespace thunder::transforms
