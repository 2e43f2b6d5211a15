// A matrix times one row: each row of the matrix is read once, and reduced to an element of the result.
#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>

#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// The parameters of `aten::linear`.
enum LinearArgument : std::size_t { kInput, kWeight, kBias };

/// Alone, too, it is worth a kernel: a matmul leaves most of a tensor core idle, and is all memory traffic.
constexpr double kWork = 8;

bool is_one_row(const ir::TensorType& input, const ir::Dim& columns) {
  if (input.sizes.empty() || input.sizes.back() != columns) return false;
  return std::ranges::all_of(std::span(input.sizes).first(input.sizes.size() - 1),
                             [](const ir::Dim& size) { return size == ir::Dim(1); });
}

FusionRole linear_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* input = argument_type(symbol, trace, kInput);
  const ir::TensorType* weight = argument_type(symbol, trace, kWeight);
  if (!target.multiplies_rows || !is_float(weight) || weight->sizes.size() != 2) return {};
  if (input == nullptr || input->dtype != weight->dtype || !is_one_row(*input, weight->sizes[1])) return {};
  FusionRole role = rows_role(symbol, trace, passes::value_argument(symbol, kWeight), weight->sizes[0], kWork);
  role.by_rows = 1U << kBias;
  return role;
}

void lower_linear(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value weight = graph.expand(lowering.argument(symbol, kWeight, compute));
  const Value product = lowering.apply(ElementOp::kMultiply, {weight, lowering.argument(symbol, kInput, compute)});
  const Value sum = graph.reduce(Reduction::kSum, product);
  lowering.set(symbol, 0, lowering.apply_if_given(ElementOp::kAdd, sum, symbol, kBias));
}

}  // namespace

void add_row_products(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({{"aten::linear", {&linear_role, &lower_linear}}});
}

}  // namespace thunder::fusion
