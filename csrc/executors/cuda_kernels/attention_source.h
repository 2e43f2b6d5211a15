#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "executors/cuda_kernels/kernel_source.h"
#include "ir/dtype.h"

namespace thunder::executors::cuda {

/// Attention of few queries for certain sizes. Strides are in elements, by batch, head, place and column; those of the
/// mask by batch, head, query and key, 0 where it is broadcast.
struct AttentionShape {
  using Strides = std::array<std::int64_t, 4>;

  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::int64_t batch = 1;
  std::int64_t groups = 1;          ///< heads of keys and values
  std::int64_t heads_of_group = 1;  ///< query heads that share one of them
  std::int64_t queries = 1;         ///< places of queries in each head
  std::int64_t keys = 1;            ///< places of keys in each head
  std::int64_t columns = 1;         ///< elements of a query, a key or a value
  double scale = 1;                 ///< factor of a query's product with a key
  std::optional<ir::Dtype> mask{};  ///< bool: which keys take part; else numbers that are added to the products
  Strides query_strides{};
  Strides key_strides{};
  Strides value_strides{};
  Strides mask_strides{};
  Strides result_strides{};
};

/// Whether there is a kernel for attention of that dtype, over rows of so many columns, in which so many queries read
/// the same keys.
[[nodiscard]] bool has_attention_kernel(ir::Dtype dtype, std::int64_t columns, std::int64_t queries_of_group);

/// A kernel for arrays query, key, value, mask if there is one, and result. Queries, keys and values are read by
/// vectors. Numbers are added in float; a query without a key that takes part gives zeros. nullopt: there is none, for
/// these sizes and strides.
[[nodiscard]] std::optional<KernelSource> emit_attention(const AttentionShape& shape, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
