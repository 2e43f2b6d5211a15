#pragma once

#include <ATen/core/Tensor.h>

namespace thunder::tracer {

/// Whether two elements of a tensor may lie in the same memory (`expand`, `unfold`). Never looks at data.
[[nodiscard]] bool overlaps_itself(const at::Tensor& tensor);

/// Whether an element of one tensor may lie in the memory of an element of the other.
[[nodiscard]] bool share_elements(const at::Tensor& left, const at::Tensor& right);

/// Whether both have the same elements in the same order.
[[nodiscard]] bool show_same_elements(const at::Tensor& left, const at::Tensor& right);

}  // namespace thunder::tracer
