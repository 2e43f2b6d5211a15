#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::ir {

/// `file.py, line 12`, as messages name a line of the user's program, between `before` and `after`. Empty where the
/// line is not known.
[[nodiscard]] inline std::string describe_line(const SourceLocation& location, const std::string& before = {},
                                               const std::string& after = {}) {
  if (location.file == nullptr || location.file->empty()) return {};
  return before + *location.file + ", line " + std::to_string(location.line) + after;
}

}  // namespace thunder::ir
