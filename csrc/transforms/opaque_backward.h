#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <optional>

namespace thunder::transforms {

/// The operator that runs the registered backward of a custom operator as one call; for those that read data, which a
/// recording has not. It takes the arguments of `op`, then
///
///   *, Tensor?[] outputs, Tensor?[] cotangents, bool[] needs
///
/// and returns a gradient for each tensor among the arguments that `needs` asks for. Nullopt: there is none.
[[nodiscard]] std::optional<c10::OperatorHandle> find_opaque_backward(const c10::OperatorHandle& op);

/// Defines such an operator and gives its name. Set by who knows what is registered.
using OpaqueBackwardMaker = std::function<std::optional<c10::OperatorName>(const c10::OperatorName& op)>;
void set_opaque_backward_maker(OpaqueBackwardMaker maker);

}  // namespace thunder::transforms
