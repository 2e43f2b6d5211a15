#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <span>

namespace thunder::tracer {

/// The result of a call on trace tensors, with metadata alone, for operators that have one result and whose own kernels
/// cannot tell: they read data, or have no kernel for metadata. nullopt: there is no rule for the operator.
[[nodiscard]] std::optional<at::Tensor> result_by_rule(const c10::OperatorHandle& op,
                                                       std::span<const c10::IValue> arguments);

/// `result`, which a meta kernel made, as the operator's own kernel makes it and lays it out, where the two differ.
[[nodiscard]] c10::IValue result_as_of_kernel(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                              c10::IValue result);

}  // namespace thunder::tracer
