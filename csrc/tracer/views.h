#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "tracer/trace_tensor.h"

namespace thunder::tracer {

/// A call of an operator: what to record.
struct OperatorCall {
  const char* name;
  const char* overload;
  std::vector<c10::IValue> arguments;
  bool has_diagonal_last = false;  ///< the source has a diagonal of the parent as its last dimension
};

/// A view whose writes autograd does not see: their gradient is not one of the memory.
[[nodiscard]] bool is_detached(const ViewOf& view);
/// The view that the tensor is to autograd; null: a tensor of its own, though it may lie in another one's memory.
[[nodiscard]] const ViewOf* autograd_view(const TraceState& state);
/// Whether the memory that autograd knows the tensor as a view of requires grad.
[[nodiscard]] bool requires_grad_by_memory(const TraceState& state);
/// To eager code, a view of what requires grad is a leaf that requires grad if it was made under no_grad, or before
/// that was told to. Whether it is one here, where it does not.
[[nodiscard]] bool is_hidden_leaf(const at::Tensor& tensor);
/// Whether autograd knows a view, and each view that it is one of, as such.
[[nodiscard]] bool is_known_to_autograd(const at::Tensor& view);
/// Whether eager refuses to write to the view with gradients on: it was made under no_grad or in inference mode, or by
/// an operation with several results.
[[nodiscard]] bool is_closed_to_writes(const TraceState& state);

/// The call that gives `view.parent` with the part that the view `shown` shows replaced by `source` (same shape);
/// nullopt when the view cannot be written through, as when elements of `shown` share memory.
[[nodiscard]] std::optional<OperatorCall> write_through(const ViewOf& view, const at::Tensor& shown,
                                                        const at::Tensor& source);

/// Makes a scatter one of the `view_as_real` of its tensors, where it has no derivative for complex numbers (of a
/// diagonal, they follow it in the source). False: it has one.
[[nodiscard]] bool to_real_parts(OperatorCall& call);

/// How a tensor shows the memory of `root`: by the conjugate and negative bits that eager gives such views.
struct LazyView {
  at::Tensor root;
  std::size_t conjugates = 0;  ///< how often it is the conjugate
  std::size_t negatives = 0;   ///< how often it is the negative
  /// Parts of a conjugate (`z.conj().imag`): in eager a negative, whose bits nobody tells the trace.
  [[nodiscard]] bool is_part_of_conjugate(bool root_is_conjugate) const;

  std::vector<bool> conjugates_of_parts{};  ///< for each `view_as_real`, whether it is of an odd number of conjugates
};
[[nodiscard]] LazyView lazy_view(const at::Tensor& trace_tensor);

}  // namespace thunder::tracer
