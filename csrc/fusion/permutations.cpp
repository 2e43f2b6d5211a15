// Permutations, which leave elements where they are: a fusion goes over them in the order of memory. Copies into
// another order.
#include <string_view>
#include <unordered_map>

#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

FusionRole permuted_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* from = argument_type(symbol, trace, 0);
  const ir::TensorType* to = result_type(symbol, trace);
  if (!target.permutes || from == nullptr || to == nullptr || from->dtype != to->dtype) return {};
  if (!passes::is_dense(*from) || !passes::is_dense(*to) || passes::element_count(*to) < 2) return {};
  return {FusionRole::Kind::kView, passes::single_result(symbol), 0, {FusionRole::Result::kElements}, 0, 0};
}

FusionRole copy_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* to = result_type(symbol, trace);
  const bool is_contiguous_copy = symbol.arguments.size() == 2 &&
                                  symbol.arguments[1] == ir::Argument(ir::MemoryFormat::kContiguous) && to != nullptr &&
                                  ir::is_contiguous(*to);
  return target.permutes && is_contiguous_copy ? element_role(symbol, trace, 1, target) : FusionRole{};
}

void lower_moved(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.argument(symbol, 0, lowering.result_type_of(symbol)));
}

}  // namespace

void add_permutations(std::unordered_map<std::string_view, Operation>& table) {
  constexpr Operation kPermuted{&permuted_role, &lower_moved};
  table.insert({{"aten::permute", kPermuted},
                {"aten::transpose.int", kPermuted},
                {"aten::t", kPermuted},
                {"aten::clone", {&copy_role, &lower_moved}}});
}

}  // namespace thunder::fusion
