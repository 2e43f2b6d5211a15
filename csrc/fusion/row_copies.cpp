// Results that are copied to rows of an input, as a cache of keys takes those of one more token.
#include "operators/row_copies.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "fusion/lowering.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

void Lowering::add_row_target(const BoundSymbol& symbol) {
  const operators::RowCopy& places = *operators::find_row_copy(*symbol.op);
  const ir::ValueId target = passes::value_argument(symbol, places.target);
  const ir::ValueId source = passes::value_argument(symbol, places.source);
  const Dims& sizes = passes::operand_type(trace_, target)->sizes;
  RowTarget rows;
  rows.index = passes::value_argument(symbol, places.index);
  rows.dim = passes::wrap_dim(std::get<std::int64_t>(symbol.arguments.at(places.dim).content), sizes.size());
  rows.strides = input_strides_[inputs_.at(index_of(target))];
  rows.size = sizes[rows.dim];
  rows.stride = std::exchange(rows.strides[rows.dim], 0);
  row_targets_.emplace(index_of(source), std::move(rows));
}

/// Adds how the domain steps through targets, and through the numbers of their rows. False: it steps otherwise.
bool Lowering::add_row_accesses(std::vector<Dims>& accesses) const {
  for (const auto& [value, target] : row_targets_) {
    const ir::TensorType& type = *trace_.tensor_type(ir::ValueId{value});
    const Dim count = product_of(type.sizes);
    const bool is_of_rows = space_.rows != Dim(0) && count == space_.rows;
    if (space_.before != Dim(1) || space_.interleaved != Dim(1) || (count != space_.count() && !is_of_rows))
      return false;
    accesses.push_back(strides_over_space(type, target.strides, type, dims_from(0, type.sizes.size())));
    const Dims& index = input_strides_[inputs_.at(index_of(target.index))];
    accesses.push_back(strides_over_space(*trace_.tensor_type(target.index), index, type, {target.dim}));
  }
  return true;
}

void Lowering::store_in_rows(Value value, std::uint32_t array, const ir::TensorType& type, const RowTarget& target) {
  Access access =
      access_of(array, type.dtype, strides_over_space(type, target.strides, type, dims_from(0, type.sizes.size())));
  access.table_rows = target.size;
  access.table_stride = target.stride;
  const ir::TensorType& index = *trace_.tensor_type(target.index);
  const Dims& index_strides = input_strides_[inputs_.at(index_of(target.index))];
  const Access numbers = access_of(inputs_.at(index_of(target.index)), index.dtype,
                                   strides_over_space(index, index_strides, type, {target.dim}));
  // A kernel chooses one row for all columns, which lie next to one another there.
  const bool has_columns = graph_->extent(value) == Extent::kElements;
  const bool fits =
      has_columns ? access.inner_stride == Dim(1) && access.run == Dim(0) : access.extent == Extent::kRows;
  if (!fits || numbers.extent != Extent::kRows) throw Failure{};
  graph_->store(value, std::move(access), graph_->convert(graph_->load(numbers), ComputeType::kInteger));
}

}  // namespace thunder::fusion
