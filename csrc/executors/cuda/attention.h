#pragma once

#include <optional>
#include <string_view>

#include "executors/cuda_kernels/kernel_source.h"
#include "fusion/lowering.h"
#include "fusion/target.h"
#include "ir/trace.h"

namespace thunder::executors::cuda {

/// The kind of block whose one operation is attention of few queries, such as that of one more token: libraries'
/// kernels are made for tiles of them.
inline constexpr std::string_view kAttention = "attention";

/// Makes blocks of kind `kAttention` of what they can run.
[[nodiscard]] ir::Trace with_attention_blocks(ir::Trace trace, const fusion::Target& target, std::string_view executor);

/// The kernel of such a block for sizes that are numbers, and inputs of these strides; nullopt: there is none.
[[nodiscard]] std::optional<KernelSource> attention_source(const ir::BoundSymbol& block, const ir::Trace& trace,
                                                           const fusion::Strides& strides, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
