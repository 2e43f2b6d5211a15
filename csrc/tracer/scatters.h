#pragma once

#include <ATen/core/Tensor.h>

#include "tracer/call_builder.h"

namespace thunder::tracer {

/// `call`, which is an as_strided_scatter of `source` into `parent`, by `where`: PyTorch's derivative of
/// as_strided_scatter keeps what was written over and drops the rest.
[[nodiscard]] at::Tensor where_shown(const CallBuilder& calls, OperatorCall call, const at::Tensor& parent,
                                     const at::Tensor& source);
/// `call`, an as_strided_scatter of `source` into `parent`, by `index_copy`, for a dense `parent`: as_strided_scatter
/// cannot be batched.
[[nodiscard]] at::Tensor copied_to_positions(const CallBuilder& calls, const OperatorCall& call,
                                             const at::Tensor& parent, const at::Tensor& source);

/// Both have their elements at the same places of their memory; they have one shape.
[[nodiscard]] bool lies_as(const at::Tensor& tensor, const at::Tensor& other);
/// Both have their dimensions in the same order in memory.
[[nodiscard]] bool has_order_of(const at::Tensor& tensor, const at::Tensor& other);

}  // namespace thunder::tracer
