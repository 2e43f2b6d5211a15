#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Scalar.h>

#include <span>
#include <vector>

#include "ir/operator.h"
#include "ir/trace.h"

namespace thunder::tracer {

/// Where the program looked at data: what follows in the trace holds for the observed values only. Executed, a check
/// ends the run when it meets something else.
///
/// `prims.check_number(number, expected)`.
[[nodiscard]] const ir::Operator* check_number_operator();
/// `prims.check_shape(tensor, [sizes])`, for a shape that follows from data.
[[nodiscard]] const ir::Operator* check_shape_operator();
/// `prims.check_contents(tensor, constant)`, where the program took all of a tensor.
[[nodiscard]] const ir::Operator* check_contents_operator();
[[nodiscard]] bool is_check(const ir::Operator& op);
/// Whether a symbol checks data, or computes with a number that came from data.
[[nodiscard]] bool looks_at_data(const ir::BoundSymbol& symbol);
/// The tensor that a `check_contents` expects.
[[nodiscard]] const at::Tensor& expected_contents(const ir::BoundSymbol& symbol, const ir::Trace& trace);

[[nodiscard]] ir::Argument argument_of(const c10::Scalar& number);
[[nodiscard]] c10::Scalar scalar_of(const ir::Argument& number);

/// Whether a result of an operation requires grad.
[[nodiscard]] bool has_gradient(const ir::Trace& trace, const ir::BoundSymbol& symbol);
/// Runs one operation of a trace on real tensors as the program called it, with PyTorch's autograd. `inputs` are those
/// of the trace; the results are tensors, lists flattened.
[[nodiscard]] std::vector<at::Tensor> run_symbol(const ir::Trace& trace, const ir::BoundSymbol& symbol,
                                                 std::span<const at::Tensor> inputs);

/// An index that says for each place whether it is meant.
[[nodiscard]] bool is_mask(const c10::IValue& index);
/// Whether one of these indices is a mask.
[[nodiscard]] bool has_mask(const c10::IValue& indices);
/// Gives tensors whose shape follows from the arguments' data.
[[nodiscard]] bool shape_follows_data(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace thunder::tracer
