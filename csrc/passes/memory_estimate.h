#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/trace.h"

namespace thunder::passes {

/// The largest number of bytes that a run of the trace has allocated at one time: tensors that operators make live
/// until the last use of anything that shares their memory, outputs to the end. Memory that kernels allocate for
/// themselves is not counted. `inputs_die`: inputs are counted, and freed after their last use, as the values saved for
/// a backward are.
[[nodiscard]] std::int64_t estimate_peak_memory(const ir::Trace& trace, bool inputs_die);

}  // namespace thunder::passes
