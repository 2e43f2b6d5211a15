#include "fusion/roles.h"

#include <algorithm>
#include <span>
#include <vector>

#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

/// Whether `value` broadcasts to `over`.
bool broadcasts(const ir::TensorType& value, const ir::TensorType& over) {
  if (value.sizes.size() > over.sizes.size()) return false;
  const std::size_t missing = over.sizes.size() - value.sizes.size();
  for (std::size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] != ir::Dim(1) && value.sizes[i] != over.sizes[i + missing]) return false;
  }
  return true;
}

/// As many elements in another order of memory, so that a tile of it is gathered from everywhere.
bool is_transposed(const ir::TensorType& value, const ir::TensorType& over, const Target& target) {
  if (value.sizes != over.sizes || !passes::is_dense(value)) return false;
  std::vector<std::size_t> order = memory_order(over);
  std::vector<std::size_t> other = memory_order(value);
  std::int64_t run = 1;
  for (; !order.empty() && order.back() == other.back(); order.pop_back(), other.pop_back()) {
    run *= over.sizes[order.back()].hint;
  }
  return !order.empty() && run < target.least_moved_run;
}

/// The dimensions of a result in the order of memory, as those of the tensor that it was reduced from.
std::vector<std::size_t> order_in_source(const ir::TensorType& result, const ir::TensorType& source,
                                         const std::vector<bool>& is_reduced) {
  std::vector<std::size_t> order = memory_order(result);
  if (result.sizes.size() == source.sizes.size()) return order;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < is_reduced.size(); ++i) {
    if (!is_reduced[i]) kept.push_back(i);
  }
  for (std::size_t& dim : order) dim = dim < kept.size() ? kept[dim] : source.sizes.size();
  return order;
}

/// Elements of the only row that there is, up to which one thread block, or one thread, may go over all of them.
constexpr std::int64_t kLongestSingleRow = 16384;

bool can_lie_interleaved(const ir::Dim& elements, const ir::Dim& rows, const Target& target) {
  return rows.hint >= target.least_interleaved && elements.hint <= target.longest_interleaved;
}

/// Whether integers among the arguments are numbers of the tensors' type: PyTorch converts them to it first, so that -1
/// is 255 for bytes.
bool holds_integers(const BoundSymbol& symbol, const Trace& trace) {
  std::int64_t bits = 0;
  bool is_signed = true;
  passes::for_each_argument(symbol, [&](ir::ValueId id) {
    const ir::Dtype dtype = passes::operand_type(trace, id)->dtype;
    if (dtype == ir::Dtype::kBool) return;
    const bool is_short = !ir::is_floating_point(dtype) && !ir::is_complex(dtype) && ir::size_of(dtype) < 8;
    bits = std::max(bits, is_short ? static_cast<std::int64_t>(ir::size_of(dtype)) * 8 : std::int64_t{64});
    is_signed = is_signed && (bits > 8 || dtype != ir::Dtype::kUint8);
  });
  if (bits == 0 || bits == 64) return true;
  const std::int64_t least = is_signed ? -(std::int64_t{1} << (bits - 1)) : 0;
  const std::int64_t most = (std::int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  return std::ranges::all_of(symbol.arguments, [&](const ir::Argument& argument) {
    const auto* number = argument.get<std::int64_t>();
    return number == nullptr || (least <= *number && *number <= most);
  });
}

}  // namespace

FusionRole element_role(const BoundSymbol& symbol, const Trace& trace, double work, const Target& target) {
  const ir::TensorType* type = result_type(symbol, trace);
  if (type == nullptr) return {};
  // An expanded tensor has no order in memory of its own: its dimensions must follow one another as they are written.
  const bool is_ordered = std::ranges::is_sorted(memory_order(*type));
  bool fits = passes::is_dense(*type) || (work == 0 && is_ordered);
  passes::for_each_argument(symbol, [&](ir::ValueId id) {
    const ir::TensorType& argument = *passes::operand_type(trace, id);
    fits = fits && broadcasts(argument, *type) && !is_transposed(argument, *type, target);
  });
  if (!fits || !holds_integers(symbol, trace)) return {};
  return {FusionRole::Kind::kWork, passes::single_result(symbol), 0, {FusionRole::Result::kElements}, 0, work};
}

FusionRole view_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::ValueId result = passes::single_result(symbol);
  const ir::ValueId source = passes::value_argument(symbol, 0);
  if (result == ir::kNoValue || source == ir::kNoValue) return {};
  const ir::TensorType* type = trace.tensor_type(result);
  const ir::TensorType* from = trace.tensor_type(source);
  if (type == nullptr || from == nullptr) return {};  // a number that was read from data
  if (!is_contiguous(*type) || !is_contiguous(*from) || type->dtype != from->dtype) return {};
  if (product_of(type->sizes) != product_of(from->sizes) || passes::element_count(*type) < 2) return {};
  return {FusionRole::Kind::kView, result, 0, {FusionRole::Result::kElements}, 0, 0};
}

FusionRole reduction_role(const BoundSymbol& symbol, const Trace& trace, const ir::Argument& dims, bool rows_only,
                          const Target& target) {
  const ir::ValueId over = passes::value_argument(symbol, 0);
  ir::ValueId result = ir::kNoValue;  // all are alike
  std::size_t result_count = 0;
  passes::for_each_result(symbol, [&](ir::ValueId id) {
    result = id;
    ++result_count;
  });
  if (over == ir::kNoValue || result == ir::kNoValue) return {};
  const ir::TensorType& type = *trace.tensor_type(over);
  const ir::TensorType& result_type = *trace.tensor_type(result);
  const std::size_t rank = type.sizes.size();
  if (rank == 0) return {};
  std::vector<bool> is_reduced(rank, false);
  const auto* list = dims.get<ir::ArgumentList>();
  if (list == nullptr || list->empty()) is_reduced.assign(rank, true);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    is_reduced[wrap_dim(std::get<std::int64_t>((*list)[i].content), rank)] = true;
  }
  if (!passes::is_dense(type) || !passes::is_dense(result_type)) return {};
  const std::vector<std::size_t> order = memory_order(type);
  if (order.empty()) return {};
  std::vector<std::size_t> kept(order.begin(), order.end());
  std::erase_if(kept, [&](std::size_t dim) { return is_reduced[dim]; });
  if (order_in_source(result_type, type, is_reduced) != kept) return {};
  // In the order of memory: elements of the dimensions up to a point that is reduced, kept, reduced, kept.
  std::size_t i = 0;
  const auto elements_of = [&](bool reduced) {
    ir::Dim elements = 1;
    for (; i < order.size() && is_reduced[order[i]] == reduced; ++i) elements *= type.sizes[order[i]];
    return elements;
  };
  const ir::Dim one = 1;
  const ir::Dim before = elements_of(true);
  const ir::Dim rows = elements_of(false);
  const ir::Dim behind = elements_of(true);
  const ir::Dim columns = elements_of(false);
  if (i < order.size() || before * behind == one) return {};
  using Results = std::vector<FusionRole::Result>;
  FusionRole role{FusionRole::Kind::kWork, over, rows, Results(result_count, FusionRole::Result::kRows), 0, 1};
  const bool has_columns_behind = behind != one;
  if (before != one && has_columns_behind) {
    role.before = before;
    return behind.hint >= target.least_reduced_run && columns == one ? role : FusionRole{};
  }
  if (has_columns_behind && columns == one) return role;
  // A result that keeps its dimensions is likely combined with the elements again, if it is not the gradient of a
  // broadcast.
  const ir::Dim reduced = before * behind;
  const bool keeps_dims = result_type.sizes.size() == rank && !is_reduced[0];
  if ((rows_only || keeps_dims) && can_lie_interleaved(reduced, has_columns_behind ? columns : rows, target)) {
    role.interleaved = has_columns_behind ? columns : rows;
    role.rows = has_columns_behind ? rows * columns : rows;
    return role;
  }
  // One row, as long as a token has elements: its sum is likely combined with the elements again, too.
  const bool is_short_row = rows == one && !has_columns_behind && reduced.hint <= kLongestSingleRow;
  if (keeps_dims && is_short_row) return role;
  if (rows_only) return {};
  if (has_columns_behind) {
    role.rows = rows * behind;
    role.blocks = rows;
    role.results.assign(result_count, FusionRole::Result::kEnd);
    return behind.hint >= target.least_block && columns.hint >= target.least_run ? role : FusionRole{};
  }
  role.rows = rows == one ? ir::Dim(0) : before;
  role.results.assign(result_count, FusionRole::Result::kEnd);
  return role;
}

FusionRole row_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::size_t row_dims,
                    double work) {
  const ir::TensorType& type = *trace.tensor_type(over);
  if (row_dims > type.sizes.size()) return {};
  const ir::Dim rows = product_of(std::span(type.sizes).first(type.sizes.size() - row_dims));
  return rows_role(symbol, trace, over, rows, work);
}

FusionRole dim_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::int64_t dim, double work,
                    const Target& target) {
  const ir::TensorType& type = *trace.tensor_type(over);
  const std::size_t wrapped = wrap_dim(dim, type.sizes.size());
  if (wrapped + 1 == type.sizes.size()) return row_role(symbol, trace, over, 1, work);
  const std::vector<std::size_t> order = memory_order(type);
  const auto place = std::ranges::find(order, wrapped);
  if (!passes::is_dense(type) || place == order.end()) return {};
  const ir::Dim elements = type.sizes[wrapped];
  ir::Dim behind = 1;
  for (auto next = place + 1; next != order.end(); ++next) behind *= type.sizes[*next];
  if (elements.hint < target.least_of_functions || !can_lie_interleaved(elements, behind, target)) return {};
  const ir::Dim rows = floor_divide(product_of(type.sizes), elements);
  FusionRole role{FusionRole::Kind::kWork, over, rows, {}, 0, work};
  role.interleaved = behind;
  bool fits = true;
  passes::for_each_result(symbol, [&](ir::ValueId id) {
    const ir::TensorType& result = *trace.tensor_type(id);
    fits = fits && result.sizes == type.sizes && passes::is_dense(result) && memory_order(result) == order;
    role.results.push_back(FusionRole::Result::kElements);
  });
  return fits ? role : FusionRole{};
}

FusionRole rows_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, const ir::Dim& rows,
                     double work) {
  const ir::TensorType& type = *trace.tensor_type(over);
  if (!is_contiguous(type)) return {};
  FusionRole role{FusionRole::Kind::kWork, over, rows, {}, 0, work};
  const ir::Dim count = product_of(type.sizes);
  const auto columns = exact_quotient(count, rows);
  if (count.hint < 2 || rows.hint < 1 || !columns || columns->hint < 2) return {};
  bool fits = true;
  passes::for_each_result(symbol, [&](ir::ValueId id) {
    const ir::TensorType& result = *trace.tensor_type(id);
    const ir::Dim elements = product_of(result.sizes);
    fits = fits && is_contiguous(result) && (elements == count || elements == role.rows);
    role.results.push_back(elements == count ? FusionRole::Result::kElements : FusionRole::Result::kRows);
  });
  return fits ? role : FusionRole{};
}

}  // namespace thunder::fusion
