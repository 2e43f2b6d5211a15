#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::compile {

/// The trace as a Python program that calls it on random inputs of the recorded metadata.
[[nodiscard]] std::string reproduction_script(const ir::Trace& trace, const std::string& reason);

/// Writes the script to a new file of the temporary folder and returns its path; empty when that is not possible.
[[nodiscard]] std::string write_reproduction(const ir::Trace& trace, const std::string& reason);

}  // namespace thunder::compile
