#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "executors/cuda_kernels/kernel_source.h"
#include "ir/dtype.h"

namespace thunder::executors::cuda {

/// A convolution in steps of one pixel of images that lie channels last, each channel with a filter of its own. Pairs
/// are height and width.
struct DepthwiseShape {
  using Pair = std::array<std::int64_t, 2>;

  ir::Dtype dtype = ir::Dtype::kBfloat16;
  std::int64_t images = 1;
  std::int64_t channels = 1;
  Pair size{};      ///< height and width of an image
  Pair out_size{};  ///< height and width of a result
  Pair kernel{};
  Pair padding{};
};

/// Whether there is a kernel for filters of that size, for that many channels of that dtype.
[[nodiscard]] bool has_depthwise_kernel(ir::Dtype dtype, std::int64_t channels, const DepthwiseShape::Pair& kernel);

/// A kernel for arrays images, filters (one after the other) and results. Numbers are added in float.
[[nodiscard]] std::optional<KernelSource> emit_depthwise(const DepthwiseShape& shape, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
