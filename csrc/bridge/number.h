#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <string_view>

#include "ir/type.h"

namespace thunder::bridge {

/// A Python number as tensors carry it: 0-dim, on the CPU, giving way to other dtypes (`x + 2`).
[[nodiscard]] at::Tensor wrap_number(const c10::Scalar& number);
/// The number in a tensor of one element, with Python's type for the dtype.
[[nodiscard]] c10::Scalar unwrap_number(const at::Tensor& tensor);

[[nodiscard]] ir::ScalarKind kind_of(const c10::Scalar& number);
[[nodiscard]] at::ScalarType dtype_of(ir::ScalarKind kind);
/// Equal down to the bits; numbers of different kinds are different.
[[nodiscard]] bool same_number(const c10::Scalar& left, const c10::Scalar& right);

/// Equal in metadata and, down to the bits, in elements.
[[nodiscard]] bool same_contents(const at::Tensor& left, const at::Tensor& right);

/// Whether PyTorch stores a number as an element of a dtype, and raises no error for it.
[[nodiscard]] bool can_hold(at::ScalarType dtype, const c10::Scalar& number);
/// Whether it does so with all elements of `from`.
[[nodiscard]] bool can_hold_all(at::ScalarType dtype, at::ScalarType from);

/// Computes `left operation right` as Python does (`neg`, `abs`, `int`, `float`, `round` and functions of `math` look
/// at `left` alone; `round_to` rounds to `right` digits); nullopt when Python raises, or when the result is no float,
/// int64 or bool. Named after a dtype (`int8`), it gives `left` where that dtype can hold it, and as `natural` where
/// that is not negative.
[[nodiscard]] std::optional<c10::Scalar> compute_number(std::string_view operation, const c10::Scalar& left,
                                                        const c10::Scalar& right);

}  // namespace thunder::bridge
