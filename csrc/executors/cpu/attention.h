#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

// A `SingleOperation`: attention of float32 without a mask and without gradients, where matmuls are oneDNN's.
// PyTorch's kernel asks MKL.
[[nodiscard]] bool takes_attention(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_attention(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
