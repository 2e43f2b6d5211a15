// Operations that draw random numbers by counter, which any kernel computes by itself: their roles, and their lowering.
#include <string_view>
#include <unordered_map>

#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// The work for one element, in additions.
constexpr double kRandomWork = 16;

FusionRole mask_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* type = result_type(symbol, trace);
  if (!target.draws_by_counter || !passes::is_dense(*type) || passes::element_count(*type) < 2) return {};
  FusionRole role{
      FusionRole::Kind::kWork, passes::single_result(symbol), 0, {FusionRole::Result::kElements}, 0, kRandomWork};
  role.gathered = 0b1;
  return role;
}

void lower_mask(Lowering& lowering, const BoundSymbol& symbol) {
  const double kept = 1 - std::get<double>(symbol.arguments.at(3).content);
  const Value number = lowering.random(symbol, 0);
  lowering.set(
      symbol, 0,
      lowering.apply(ElementOp::kLess, {number, lowering.number(ComputeType::kFloat, static_cast<float>(kept))}));
}

}  // namespace

void add_random_operations(std::unordered_map<std::string_view, Operation>& table) {
  table.emplace("thunder::dropout_mask", Operation{&mask_role, &lower_mask});
}

}  // namespace thunder::fusion
