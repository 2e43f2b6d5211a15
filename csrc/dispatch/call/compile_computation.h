#pragma once

#include <memory>
#include <span>

#include "compile/options.h"
#include "dispatch/call/specialization.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// Gives a specialization the compiled trace: a path of segments where the program looks at data, a computation
/// otherwise. `known` are the specializations of the same callable.
void compile_computation(const ir::Trace& trace, std::span<const std::shared_ptr<const Specialization>> known,
                         const compile::Options& options, Specialization& specialization);

}  // namespace thunder::dispatch
