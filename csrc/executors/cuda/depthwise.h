#pragma once

#include <optional>
#include <string_view>

#include "executors/cuda_kernels/kernel_source.h"
#include "fusion/lowering.h"
#include "fusion/target.h"
#include "ir/trace.h"

namespace thunder::executors::cuda {

/// The kind of block whose one operation is a depthwise convolution of 16-bit images that lie channels last.
inline constexpr std::string_view kDepthwise = "depthwise";

/// Makes blocks of kind `kDepthwise` of what they can run.
[[nodiscard]] ir::Trace with_depthwise_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor);

/// The kernel of such a block for sizes that are numbers, and inputs of these strides; nullopt: there is none.
[[nodiscard]] std::optional<KernelSource> depthwise_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                                           const fusion::Strides& strides, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
