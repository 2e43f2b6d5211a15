#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

// A `SingleOperation`: a product of float32 matrices, by oneDNN. MKL, which PyTorch asks, leaves the AVX-512 of
// processors alone that are not Intel's, and is half as fast there.
[[nodiscard]] bool takes_product(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_product(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
