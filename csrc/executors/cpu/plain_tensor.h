#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace thunder::executors::cpu {

/// Whether a kernel of this executor's own may read the tensor: elements of `dtype` in memory of the CPU, as they are.
[[nodiscard]] inline bool is_plain(const at::Tensor& tensor, at::ScalarType dtype, std::int64_t dims) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == dims && tensor.scalar_type() == dtype &&
         tensor.numel() > 0 && !tensor.is_neg() && !tensor._is_zerotensor();
}

}  // namespace thunder::executors::cpu
