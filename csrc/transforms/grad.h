#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::transforms {

/// Which rule differentiated an operation, for `thunder.inspect.rules`.
struct ServedOperation {
  std::string operation;  ///< as printed traces call it: `aten.dropout.default`
  std::string rule;       ///< `registered`, `derived` or `custom`
  std::string reason;
  ir::SourceLocation location;
};

/// A computation split for reverse-mode differentiation.
///
/// `forward` takes the computation's inputs and returns its outputs followed by the saved values. `backward` takes the
/// saved values followed by one cotangent for each index in `differentiable_outputs`, and returns one gradient for each
/// input of the computation (None where none is needed). Saved values that are inputs of the computation appear in
/// `saved` too.
struct ForwardBackward {
  ir::Trace forward;
  ir::Trace backward;
  std::size_t output_count = 0;
  std::vector<ir::ValueId> saved;                   ///< values of `forward`
  std::vector<std::size_t> differentiable_outputs;  ///< outputs that have a gradient function
  std::vector<std::size_t> differentiable_inputs;   ///< inputs with requires_grad that receive a gradient
  /// By value of `forward`: whether the computation says that it requires grad; nullopt: the computation has it not.
  std::vector<std::optional<bool>> requires_grad{};
  std::vector<ServedOperation> served{};  ///< in order of the forward
  /// For `backward_for`, where there are several cotangents.
  std::function<ir::Trace(const std::vector<bool>& cotangents)> derive_backward{};
};

/// Differentiates the first `output_count` outputs with respect to the inputs whose type requires grad. Derivatives
/// come from the registered rules, or else from a replay of one operation at a time with PyTorch's autograd layer,
/// remembered by operator and metadata. `again`: the backward will be differentiated. For a computation with
/// symbols see `symbolic_grad.h`.
[[nodiscard]] ForwardBackward forward_and_backward(const ir::Trace& computation,
                                                   std::size_t output_count = static_cast<std::size_t>(-1),
                                                   bool again = false);

/// The backward where only some cotangents come: `cotangents[i]` says whether that of `differentiable_outputs[i]` does.
/// It takes all saved values of the full one, then those cotangents, and computes what PyTorch's autograd does with the
/// other ones undefined: operations that none reaches are not in it, and inputs that none reaches get None. May run on
/// any thread, one at a time.
[[nodiscard]] ir::Trace backward_for(const ForwardBackward& gradient, const std::vector<bool>& cotangents);

/// Whether any output of the computation depends differentiably on an input that requires grad.
[[nodiscard]] bool needs_backward(const ir::Trace& computation);

}  // namespace thunder::transforms
