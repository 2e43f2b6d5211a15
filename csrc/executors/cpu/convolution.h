#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

// A `SingleOperation`: a convolution of images that runs without gradients. PyTorch brings the filters to oneDNN's
// layout in each call; they are kept in it while they stay the same, if images lie channels last.
[[nodiscard]] bool takes_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);
// Lowers a convolution as `lower_convolution` does, where the user promises that filters move their versions when they
// change.
void lower_prepacked_convolution(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                 runtime::ProgramBuilder& builder);

/// An `OperationWithActivation`: a convolution of images that lie channels last, which runs without gradients.
[[nodiscard]] bool convolution_takes_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_convolution_with_activation(const ir::BoundSymbol& convolution, const ir::BoundSymbol& activation,
                                       const ir::Trace& trace, bool prepacks, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
