#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <span>
#include <vector>

namespace thunder::tracer {

/// The results of a call on trace tensors, with metadata alone, for operators whose own kernels cannot tell (they read
/// data, or have no kernel for metadata), or tell slowly. nullopt: there is no rule for the call.
[[nodiscard]] std::optional<std::vector<c10::IValue>> results_by_rule(const c10::OperatorHandle& op,
                                                                      std::span<const c10::IValue> arguments);

/// Result `index`, which a meta kernel made, as the operator's own kernel makes it and lays it out, where they differ.
[[nodiscard]] c10::IValue result_as_of_kernel(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                              std::size_t index, c10::IValue result);

}  // namespace thunder::tracer
