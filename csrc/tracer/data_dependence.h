#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "ir/operator.h"

namespace thunder::tracer {

/// `prims.check_number(tensor, number)`: the trace holds for this number only; a program stops where it differs.
[[nodiscard]] const ir::Operator* check_number_operator();
/// `prims.check_shape(tensor, [sizes])`: likewise for a shape that follows from data.
[[nodiscard]] const ir::Operator* check_shape_operator();

/// Gives the program a number that is an element of a tensor.
[[nodiscard]] bool reads_number(const c10::OperatorHandle& op);
/// Takes lengths in tensors whose data its kernel reads, and has a variant that takes numbers.
[[nodiscard]] bool reads_lengths(const c10::OperatorHandle& op);
/// Gives tensors whose shape follows from the arguments' data.
[[nodiscard]] bool shape_follows_data(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace thunder::tracer
