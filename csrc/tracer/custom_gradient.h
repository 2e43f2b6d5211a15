#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "ir/symbol_values.h"
#include "ir/trace.h"

namespace thunder::tracer {

/// The backward that the program brought along for values that it made (`torch.autograd.Function`), as recorded where
/// they were made. Values are those of the recorded trace.
///
/// Its symbol is `prims.custom_gradient([values], [values that `symbols` reads, then `inputs`], object)`. The results
/// are the values, with this backward instead of that of the operations that computed them.
struct CustomGradient {
  std::vector<ir::ValueId> cotangents;  ///< one for each value
  std::vector<ir::BoundSymbol> symbols;
  std::vector<ir::ValueId> reads;      ///< values made before, as the symbol lists them
  std::vector<ir::ValueId> inputs;     ///< values that receive a gradient, as the symbol lists them
  std::vector<ir::ValueId> gradients;  ///< one for each input; kNoValue: zero
};

/// The values that a gradient uses but does not make, in order, without its cotangent.
[[nodiscard]] std::vector<ir::ValueId> free_values(const CustomGradient& gradient);

[[nodiscard]] const ir::Operator* custom_gradient_operator();
/// `visit(result, value)` for each result of a custom gradient and the value that it hands on.
template <typename Visit>
void for_each_handed_on(const ir::BoundSymbol& symbol, Visit visit) {
  const std::vector<ir::ValueId> results = ir::flat_results(symbol);
  const auto& values = std::get<ir::ArgumentList>(symbol.arguments[0].content);
  for (std::size_t i = 0; i < results.size(); ++i) visit(results[i], std::get<ir::ValueId>(values[i].content));
}
/// For a trace that nobody differentiates; nullopt: it has none.
[[nodiscard]] std::optional<ir::Trace> without_custom_gradients(const ir::Trace& trace);
/// A gradient as a trace, with the values of the trace that it belongs to, and the other way round. Its outputs are the
/// lists of the gradient; its inputs are all that these name and that it does not make, and those that give sizes.
[[nodiscard]] ir::Trace trace_of_gradient(const CustomGradient& gradient, const ir::Trace& trace);
/// Throws InternalError for another trace.
[[nodiscard]] CustomGradient gradient_of_trace(const ir::Trace& part);
[[nodiscard]] const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::tracer
