#pragma once

#include <vector>

#include "ir/trace.h"
#include "transforms/replay.h"

namespace thunder::transforms {

/// The program that pushes tangents forward: its inputs are those of `trace`, then one tangent for each of them that
/// `has_tangent` (the others' are zero); its outputs are those of `trace`, then one tangent for each (None: zero).
/// Every operation is replayed through PyTorch's forward AD, recorded below it.
[[nodiscard]] ir::Trace jvp(const ir::Trace& trace, const RecordedInputs& inputs, const std::vector<bool>& has_tangent);

}  // namespace thunder::transforms
