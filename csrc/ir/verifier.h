#pragma once

#include <string_view>

#include "ir/trace.h"

namespace thunder::ir {

/// Throws InternalError that names `where` and the symbol unless: every argument is an input or the result of an
/// earlier symbol, every result is new, counts match the operator's schema, types are set, outputs exist.
void verify(const Trace& trace, std::string_view where);

}  // namespace thunder::ir
