#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace thunder::executors::cpu {

/// A convolution of images with one filter for each channel; arrays hold rows and columns.
struct DepthwiseConvolution {
  std::array<std::int64_t, 2> filter;
  std::array<std::int64_t, 2> stride;
  std::array<std::int64_t, 2> padding;
  std::array<std::int64_t, 2> dilation;
};

struct DepthwiseGradients {
  at::Tensor filter;  ///< [channels, 1, rows, columns]
  at::Tensor bias;    ///< [channels]; undefined where it was not asked for
};

/// The gradients of a depthwise convolution, from its input [n, c, h, w] and the gradient of its output, both of one
/// dtype: float64, float32, bfloat16 or float16. Gives float64 for the first, float32 for the others. Tensors that are
/// not channels_last are copied to that layout. The same bits whatever the number of threads.
[[nodiscard]] DepthwiseGradients depthwise_gradients(const at::Tensor& input, const at::Tensor& gradient,
                                                     const DepthwiseConvolution& convolution, bool with_bias);

}  // namespace thunder::executors::cpu
