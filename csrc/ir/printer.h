#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::ir {

struct PrintOptions {
  bool nested = false;    ///< print the operations of each symbol below it, as comments
  bool locations = true;  ///< `# models/llama.py:12` above a symbol whose line differs from the one before
  bool deletions = true;  ///< `del t3` after the last use of a value
};

/// The trace as a Python program: imports, a signature, one call a line with the result's type as a comment, a tuple
/// of the outputs. Same trace, same text. Decorated with `torch.no_grad` if it calls torch operators. `exec` of it
/// defines a function named `trace.name()`; names `object<i>` must be bound to the constants of the trace's context
/// beforehand.
[[nodiscard]] std::string print(const Trace& trace, const PrintOptions& options = {});

/// One symbol as a line of Python, for error messages.
[[nodiscard]] std::string print(const BoundSymbol& symbol, const Trace& trace);

}  // namespace thunder::ir
