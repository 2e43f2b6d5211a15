#include "operators/reorderings.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <variant>

namespace thunder::operators {

bool is_reshape(const ir::Operator& op) {
  return op.name == "aten::view" ? op.overload.empty() : op.name == "aten::reshape" || op.name == "aten::_unsafe_view";
}

std::optional<std::vector<std::size_t>> permutation_of(const ir::BoundSymbol& symbol, std::size_t rank) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto dim = [&](const ir::Argument& argument) {
    const auto* number = argument.get<std::int64_t>();
    return static_cast<std::size_t>(*number < 0 ? *number + static_cast<std::int64_t>(order.size()) : *number);
  };
  const ir::Operator& op = *symbol.op;
  if (op.name == "aten::t") {
    if (order.size() == 2) std::swap(order[0], order[1]);
  } else if (op.name == "aten::transpose" && op.overload == "int") {
    if (!order.empty()) std::swap(order[dim(symbol.arguments[1])], order[dim(symbol.arguments[2])]);
  } else if (op.name == "aten::permute") {
    const auto& dims = std::get<ir::ArgumentList>(symbol.arguments[1].content);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = dim(dims[i]);
  } else {
    return std::nullopt;
  }
  return order;
}

}  // namespace thunder::operators
