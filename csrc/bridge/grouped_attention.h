#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace thunder::bridge {

/// `scaled_dot_product_attention` of queries [B, G * n, L, E] over keys and values [B, G, S, E], each of which n
/// neighbouring heads share. Where no fused kernel of PyTorch reads them so, they are repeated first, for a kernel that
/// wants one for each head. The result has these strides.
[[nodiscard]] at::Tensor grouped_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                           const std::optional<at::Tensor>& mask, bool is_causal,
                                           std::optional<double> scale, at::IntArrayRef strides);

}  // namespace thunder::bridge
