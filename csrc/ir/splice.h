#pragma once

#include <span>

#include "ir/trace.h"

namespace thunder::ir {

/// Appends the symbols of `from` to `into`, with new values for what they make and `inputs` (values of `into`, or
/// constants) in the place of `from.inputs`. Returns `from`'s outputs as seen from `into`: values, constants, None.
/// A trace of another family brings its file names and objects along.
[[nodiscard]] ArgumentList splice(Trace& into, const Trace& from, std::span<const Argument> inputs);

}  // namespace thunder::ir
