#include "executors/aten/work_estimate.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ir/symbol_values.h"

namespace thunder::executors::aten {
namespace {

/// A thread does this many multiplications in the microseconds that it takes to wake another one.
constexpr std::int64_t kSmallProduct = std::int64_t{1} << 17U;
/// Of operations whose work we do not know: their tensors have at most this many elements.
constexpr std::int64_t kSmallTensors = 4096;

struct Product {
  std::string_view name;
  std::size_t left;  ///< the argument whose last dimension is summed over
};
constexpr Product kProducts[] = {{"aten::mm", 0},      {"aten::addmm", 1},  {"aten::bmm", 0},
                                 {"aten::baddbmm", 1}, {"aten::linear", 0}, {"aten::matmul", 0}};

std::int64_t elements_of(const ir::TensorType& type) {
  std::int64_t count = 1;
  for (const ir::Dim& size : type.sizes) count *= size.hint;
  return count;
}

template <typename Arguments>
std::int64_t most_elements(const Arguments& arguments, const ir::Trace& trace) {
  std::int64_t most = 0;
  for (const ir::Argument& argument : arguments) {
    ir::for_each_value(argument, [&](ir::ValueId id) {
      if (const ir::TensorType* type = trace.tensor_type(id)) most = std::max(most, elements_of(*type));
    });
  }
  return most;
}

}  // namespace

bool is_small(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const std::int64_t results = most_elements(symbol.results, trace);
  for (const Product& product : kProducts) {
    if (symbol.op->name != product.name) continue;
    const auto* id = symbol.arguments[product.left].get<ir::ValueId>();
    const ir::TensorType* left = id == nullptr ? nullptr : trace.tensor_type(*id);
    return left != nullptr && !left->sizes.empty() && results * left->sizes.back().hint <= kSmallProduct;
  }
  return std::max(results, most_elements(symbol.arguments, trace)) <= kSmallTensors;
}

}  // namespace thunder::executors::aten
