#pragma once

#include "ir/trace.h"
#include "ir/uses.h"
#include "passes/alias_analysis.h"

namespace thunder::passes {

/// The keys or values, `[batch, heads, tokens, elements]`, that were repeated for the heads of each group (`repeat_kv`
/// in Hugging Face's models: `unsqueeze`, `expand`, `reshape`). kNoValue: they were not, or something writes to them.
[[nodiscard]] ir::ValueId heads_before_repeating(ir::ValueId repeated, const ir::Trace& trace, const ir::Uses& uses,
                                                 const AliasAnalysis& aliases);

}  // namespace thunder::passes
