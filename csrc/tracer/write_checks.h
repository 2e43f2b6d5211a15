#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

namespace thunder::tracer {

/// Raises what eager raises for a call that writes, as far as that follows from metadata: memory that overlaps, a
/// result that a target cannot hold, `out=` with gradients. Writes nothing.
void raise_as_eager(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// For a call that writes to `targets`, which are among the arguments: raises as eager, or refuses, where the elements
/// of a target lie over each other, or over those of another argument. The kernel's result then depends on the order in
/// which it writes.
void require_separate_elements(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                               std::span<const at::Tensor> targets);

/// For a call that writes `result` to `target`: raises as eager, or refuses, where `target` is of another shape or a
/// dtype that eager may mind.
void require_fitting_result(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                            const at::Tensor& target, const at::Tensor& result, bool is_out);

/// Whether eager refuses to write to a tensor from outside with gradients on, for what it is a view of.
[[nodiscard]] bool is_closed_outside(const at::Tensor& tensor);

}  // namespace thunder::tracer
