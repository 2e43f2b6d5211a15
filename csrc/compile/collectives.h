#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::compile {

/// A line for each operation of a trace by which processes talk: name, types of tensors (without the index of their
/// device) and other arguments, then, from `  # ` on, the user's line. All processes have the same ones, in front of
/// that, or they talk past one another.
[[nodiscard]] std::string describe_collectives(const ir::Trace& trace);

}  // namespace thunder::compile
