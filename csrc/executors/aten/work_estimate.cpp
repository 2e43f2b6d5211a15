#include "executors/aten/work_estimate.h"

#include <algorithm>
#include <cstdint>

#include "operators/facts.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::aten {
namespace {

/// A thread does this many multiplications in the microseconds that it takes to wake another one.
constexpr std::int64_t kSmallMatmul = std::int64_t{1} << 17U;
/// Operations whose work is not known are small if their tensors have at most this many elements.
constexpr std::int64_t kSmallTensors = 4096;

}  // namespace

bool is_small(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  std::int64_t most = 0;
  const auto look = [&](ir::ValueId id) {
    if (const ir::TensorType* type = trace.tensor_type(id)) most = std::max(most, passes::element_count(*type));
  };
  passes::for_each_result(symbol, look);
  if (const operators::Matmul* matmul = operators::find_matmul(*symbol.op)) {
    const ir::TensorType* left = trace.tensor_type(passes::value_argument(symbol, matmul->left));
    return left != nullptr && !left->sizes.empty() && most * left->sizes.back().hint <= kSmallMatmul;
  }
  passes::for_each_argument(symbol, look);
  return most <= kSmallTensors;
}

}  // namespace thunder::executors::aten
