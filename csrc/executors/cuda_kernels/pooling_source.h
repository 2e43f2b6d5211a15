#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "executors/cuda_kernels/kernel_source.h"
#include "ir/dtype.h"

namespace thunder::executors::cuda {

/// Max pooling of images that lie channels last. Pairs are height and width.
struct PoolingShape {
  using Pair = std::array<std::int64_t, 2>;

  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::int64_t images = 1;
  std::int64_t channels = 1;
  Pair size{};      ///< height and width of an image
  Pair out_size{};  ///< windows of an image
  Pair kernel{};
  Pair stride{};
  Pair padding{};
};

/// Whether there are kernels for pooling of that dtype and that many channels: a window has few elements, and an
/// element is in few windows.
[[nodiscard]] bool has_pooling_kernels(ir::Dtype dtype, std::int64_t channels, const PoolingShape::Pair& kernel,
                                       const PoolingShape::Pair& stride);

/// A kernel for arrays images, maxima, and, if wanted, their places (int64, within a channel of an image).
[[nodiscard]] std::optional<KernelSource> emit_max_pooling(const PoolingShape& shape, bool gives_places,
                                                           const LaunchFacts& facts);
/// A kernel for arrays gradient of the maxima, images (which it does not read), places, and gradient of the images. The
/// gradients of an element are added in float, in one order.
[[nodiscard]] std::optional<KernelSource> emit_max_pooling_gradient(const PoolingShape& shape,
                                                                    const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
