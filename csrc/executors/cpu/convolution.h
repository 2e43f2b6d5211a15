#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// Whether a symbol is a convolution of images for which oneDNN's own layout of filters may be kept from call to call.
[[nodiscard]] bool is_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace);
/// Keeps it where no gradient is asked for, filters stay the same, and images lie channels last; PyTorch brings filters
/// to that layout in each call.
void lower_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
