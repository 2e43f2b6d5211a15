#pragma once

#include <vector>

#include "executors/api/kernel_text.h"
#include "ir/trace.h"

namespace thunder::compile {

/// The kernels of a block, one for each block inside of a batch, as programs that exist have them; none where the
/// executor's kernels have no source, and where the symbol is no block.
[[nodiscard]] std::vector<executors::KernelText> block_kernels(const ir::BoundSymbol& block, const ir::Trace& trace);

/// The kernels that the operations of a fusion would have on a GPU, for the traced sizes and strides, whatever executor
/// it is of. Needs neither a GPU nor NVRTC. None where the symbol is no fusion.
[[nodiscard]] std::vector<executors::KernelText> block_kernels_on_gpu(const ir::BoundSymbol& block,
                                                                      const ir::Trace& trace);

}  // namespace thunder::compile
