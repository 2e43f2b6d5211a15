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

}  // namespace thunder::tracer
