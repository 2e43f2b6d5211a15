#pragma once

#include <cstdint>
#include <map>
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

/// The outputs of a structure that the computation of a changed epilogue gives besides: position among the results of
/// the computation -> output of the structure.
using AddedOutputs = std::map<std::int64_t, std::uint32_t>;
/// The structure of an epilogue that was changed: `before` is its trace, `after` an edit of that. Writes may be left
/// out, calls with added outputs added, and another value returned. Throws UserError for other changes.
[[nodiscard]] Structure changed_structure(const Structure& structure, const ir::Trace& before, const ir::Trace& after,
                                          const AddedOutputs& added);

}  // namespace thunder::interpreter
