#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "tracer/evaluate.h"

namespace thunder::tracer {

/// Metadata of the results of one of PyTorch's operators without a meta kernel, by running its backend kernel on zeros.
/// For operators whose shapes do not follow from data, where no data is at hand: in derivatives.
[[nodiscard]] ResultTypes infer_by_probe(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// Runs an operator on zeros, which raises what its kernel raises for tensors of such shapes and types.
void raise_as_kernel(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// Whether autograd takes note of the write of `op` to an argument that requires grad. It knows nothing of operators
/// that it has no formula for, such as `logical_and_`: the argument keeps its history, and may be a leaf.
[[nodiscard]] bool autograd_sees_write(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                       std::size_t written);

}  // namespace thunder::tracer
