#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/generalization.h"
#include "ir/size.h"
#include "ir/trace.h"

namespace thunder::tracer {

// Functions of ir/trace_sizes.h and ir/generalization.h for traces with custom gradients, whose operations have sizes,
// too. Defined in custom_gradient.cpp.

/// As `ir::at_sizes` and `ir::generalize`, for traces with custom gradients.
[[nodiscard]] ir::Trace at_sizes_with_gradients(const ir::Trace& trace, ir::SymbolValues symbols);
[[nodiscard]] ir::Trace generalize_with_gradients(std::span<const ir::Trace> traces, ir::SizeFit& fit,
                                                  const ir::AreAlike& are_alike);
/// As `ir::symbols_of`, with those that only a custom gradient has.
[[nodiscard]] std::vector<std::uint32_t> symbols_with_gradients(const ir::Trace& trace);

}  // namespace thunder::tracer
