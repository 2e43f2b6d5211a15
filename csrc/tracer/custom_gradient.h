#pragma once

#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

/// The backward that the program brought along for one of its values (`torch.autograd.Function`), as recorded where
/// the value was made. Values are those of the recorded trace.
///
/// Its symbol is `prims.custom_gradient(value, [values that `symbols` reads, then `inputs`], object)`. The result is
/// the value, with this backward instead of that of the operations that computed it.
struct CustomGradient {
  ir::ValueId cotangent = ir::kNoValue;
  std::vector<ir::BoundSymbol> symbols;
  std::vector<ir::ValueId> reads;      ///< values made before, as the symbol lists them
  std::vector<ir::ValueId> inputs;     ///< values that receive a gradient, as the symbol lists them
  std::vector<ir::ValueId> gradients;  ///< one for each input; kNoValue: zero
};

/// The values that a gradient uses but does not make, in order, without its cotangent.
[[nodiscard]] std::vector<ir::ValueId> free_values(const CustomGradient& gradient);
/// Takes the symbols from `begin` on out of the trace. Constants stay: the program may use them again.
[[nodiscard]] std::vector<ir::BoundSymbol> cut(ir::Trace& trace, std::size_t begin);

[[nodiscard]] const ir::Operator* custom_gradient_operator();
[[nodiscard]] const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::tracer
