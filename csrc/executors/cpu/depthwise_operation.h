#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// Makes blocks of their own, as fusions are, of the backwards of depthwise convolutions of images that give the
/// filters' gradient.
void take_depthwise(ir::Trace& trace, const char* executor);
/// Whether a block is one of those.
[[nodiscard]] bool is_depthwise(const ir::BoundSymbol& block);
void lower_depthwise(const ir::BoundSymbol& block, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
