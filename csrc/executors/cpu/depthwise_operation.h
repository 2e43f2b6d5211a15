#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

// A `SingleOperation`: the backward of a depthwise convolution of images, where it gives the filters' gradient.
[[nodiscard]] bool takes_depthwise(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_depthwise(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
