#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dispatch/call/specialization.h"

namespace thunder::dispatch {

/// Gives a specialization the computation of one of `known` that was compiled from an equal trace under the same state,
/// or else compiles its own. A computation is not shared if something besides the trace takes part in it: Python
/// objects in the trace, executors and transforms of the user, and weights that programs pack for themselves.
void share_or_compile(const ir::Trace& recorded, const compile::Options& options,
                      std::span<const std::shared_ptr<const Specialization>> known, Specialization& specialization);

}  // namespace thunder::dispatch
