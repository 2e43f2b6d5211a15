#pragma once

#include <span>

#include "interpreter/guards/guard_program.h"
#include "interpreter/structures/structure.h"
#include "ir/trace.h"

namespace thunder::interpreter {

/// The guards as a trace `prologue(args, kwargs)` of `prims` that returns the computation's inputs, or raises
/// `prims.GuardFailed`. `tensors` are the types of the inputs.
[[nodiscard]] ir::Trace prologue_trace(const GuardProgram& program, std::span<const ir::TypePtr> tensors);

/// The structure as a trace `epilogue(outputs, inputs, externals)` that takes what the computation returned, its
/// inputs, and outside objects, does the writes and returns the call's result.
[[nodiscard]] ir::Trace epilogue_trace(const Structure& structure);

}  // namespace thunder::interpreter
