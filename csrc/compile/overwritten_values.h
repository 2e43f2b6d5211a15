#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::compile {

/// Copies the saved values (those behind `output_count` in the outputs) that lie in an input's memory and were made
/// before the trace writes to it: the backward needs what was there then.
[[nodiscard]] ir::Trace copy_overwritten_saved_values(const ir::Trace& forward, std::size_t output_count);

}  // namespace thunder::compile
