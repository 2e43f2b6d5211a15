#pragma once

#include <c10/core/Allocator.h>

namespace thunder::executors::cpu {

/// Memory for results of fusions. Large blocks are kept when their tensors are gone, and given to the next ones of
/// their size: touching new pages costs several times what it costs to write to them. What nobody asked for during many
/// later allocations goes back to the system.
[[nodiscard]] c10::Allocator& result_memory();

}  // namespace thunder::executors::cpu
