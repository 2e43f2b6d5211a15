// Rows and elements that indices choose.
#include <string_view>
#include <unordered_map>

#include "fusion/operations.h"
#include "fusion/rowwise.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// `x[indices]`; the numbers are the arguments' places.
template <std::size_t table, std::size_t indices>
FusionRole gather_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
  const ir::TensorType* matrix = argument_type(symbol, trace, table);
  const ir::TensorType* chosen = argument_type(symbol, trace, indices);
  const ir::TensorType* result = result_type(symbol, trace);
  if (matrix == nullptr || chosen == nullptr || result == nullptr || matrix->sizes.size() != 2) return {};
  const bool are_integers = chosen->dtype == ir::Dtype::kInt64 || chosen->dtype == ir::Dtype::kInt32;
  if (!are_integers || !is_contiguous(*chosen)) return {};
  FusionRole role = row_role(symbol, trace, passes::single_result(symbol), 1, 1);
  role.by_rows = 1U << indices;
  role.gathered = 1U << table;
  return role;
}
void lower_embedding(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.gather(symbol, 0, lowering.argument(symbol, 1, ComputeType::kInteger)));
}

FusionRole index_select_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* index = argument_type(symbol, trace, 2);
  const bool is_vector = index != nullptr && index->sizes.size() <= 1;  // its kernel refuses others
  return is_vector && symbol.arguments[1] == ir::Argument(0) ? gather_role<0, 2>(symbol, trace, target) : FusionRole{};
}
void lower_index_select(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, lowering.gather(symbol, 0, lowering.argument(symbol, 2, ComputeType::kInteger)));
}

/// Indices below zero count from the end.
void lower_index(Lowering& lowering, const BoundSymbol& symbol) {
  const Value index = lowering.argument(symbol, 1, ComputeType::kInteger);
  const ir::Dim count = lowering.type(symbol, 0)->sizes[0];
  const Value wrapped = lowering.apply(ElementOp::kAdd, {index, lowering.number(ComputeType::kInteger, count)});
  const Value is_negative = lowering.apply(ElementOp::kLess, {index, lowering.number(ComputeType::kInteger, 0)});
  lowering.set(symbol, 0, lowering.gather(symbol, 0, lowering.apply(ElementOp::kWhere, {is_negative, wrapped, index})));
}

/// One element for each row, added at a column.
FusionRole scatter_add_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const FusionRole role = rows_along_role(symbol, trace, 1, target);
  if (role.interleaved != ir::Dim(1)) return {};
  const ir::TensorType* index = argument_type(symbol, trace, 2);
  const ir::TensorType* source = argument_type(symbol, trace, 3);
  if (role.kind == FusionRole::Kind::kNone || index == nullptr || source == nullptr || index->sizes.empty()) return {};
  const auto is_row = [&](const ir::TensorType& type) {
    return type.sizes.size() == trace.tensor_type(role.over)->sizes.size() && type.sizes.back() == ir::Dim(1) &&
           product_of(type.sizes) == role.rows;
  };
  return is_row(*index) && is_row(*source) ? role : FusionRole{};
}
void lower_scatter_add(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value added = graph.expand_rows(lowering.argument(symbol, 3, compute));
  lowering.set(symbol, 0,
               graph.scatter_add(graph.expand(lowering.argument(symbol, 0, compute)),
                                 lowering.argument(symbol, 2, ComputeType::kInteger), added));
}

}  // namespace

void add_row_gathers(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::embedding", {&gather_role<0, 1>, &lower_embedding}},
      {"aten::index_select", {&index_select_role, &lower_index_select}},
      {"aten::index.Tensor", {&gather_role<0, 1>, &lower_index}},
      {"aten::scatter_add", {&scatter_add_role, &lower_scatter_add}},
  });
}

}  // namespace thunder::fusion
