#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace thunder::runtime {

/// A tensor without levels of `vmap`; the dimensions of the levels, which ascend, come first.
struct Physical {
  at::Tensor tensor;
  std::vector<std::int64_t> levels;
};

/// Whether a tensor, no trace tensor, stands for an example of a batch of `torch._vmap_internals`.
[[nodiscard]] bool is_legacy_example(const at::Tensor& tensor);
[[nodiscard]] Physical unwrap_legacy(const at::Tensor& tensor);
/// An example of the batches along the first dimensions of `tensor`, which belong to `levels`.
[[nodiscard]] at::Tensor wrap_legacy(const at::Tensor& tensor, std::span<const std::int64_t> levels);

}  // namespace thunder::runtime
