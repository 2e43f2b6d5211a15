#pragma once

#include <optional>
#include <string_view>

#include "executors/cuda_kernels/kernel_source.h"
#include "fusion/lowering.h"
#include "fusion/target.h"
#include "ir/trace.h"

namespace thunder::executors::cuda {

/// The kind of block whose one operation is max pooling of images that lie channels last, or its derivative: PyTorch's
/// kernels take several times as long as their memory traffic.
inline constexpr std::string_view kPooling = "pooling";

/// Makes blocks of kind `kPooling` of what they can run.
[[nodiscard]] ir::Trace with_pooling_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor);

/// The kernel of such a block for sizes that are numbers, and inputs of these strides; nullopt: there is none.
[[nodiscard]] std::optional<KernelSource> pooling_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                                         const fusion::Strides& strides, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
