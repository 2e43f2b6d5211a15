#include "bridge/grouped_attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cstdint>

namespace thunder::bridge {
namespace {

constexpr double kNoDropout = 0.0;

/// [B, G, S, E] as [B, heads, S, E].
at::Tensor repeated(const at::Tensor& tensor, std::int64_t heads) {
  const std::int64_t repeats = heads / tensor.size(1);
  return tensor.unsqueeze(2)
      .expand({tensor.size(0), tensor.size(1), repeats, tensor.size(2), tensor.size(3)})
      .reshape({tensor.size(0), heads, tensor.size(2), tensor.size(3)});
}

}  // namespace

at::Tensor grouped_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const std::optional<at::Tensor>& mask, bool is_causal, std::optional<double> scale,
                             at::IntArrayRef strides) {
  const std::int64_t choice =
      at::_fused_sdp_choice(query, key, value, mask, kNoDropout, is_causal, scale, /*enable_gqa=*/true);
  const bool is_fused = choice != static_cast<std::int64_t>(at::SDPBackend::math);
  const at::Tensor result = at::scaled_dot_product_attention(query, is_fused ? key : repeated(key, query.size(1)),
                                                             is_fused ? value : repeated(value, query.size(1)), mask,
                                                             kNoDropout, is_causal, scale, /*enable_gqa=*/is_fused);
  if (result.strides() == strides) return result;
  return at::empty_strided(result.sizes(), strides, result.options()).copy_(result);
}

}  // namespace thunder::bridge
