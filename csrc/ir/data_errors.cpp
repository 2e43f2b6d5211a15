#include "ir/data_errors.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "ir/symbol_values.h"

namespace thunder::ir {
namespace {

/// Operators that raise errors for data: matrices that have no inverse, positions out of range, numbers that are no
/// probabilities. All of `linalg` do besides.
constexpr std::string_view kNames[] = {
    "aten::binary_cross_entropy",
    "aten::cholesky",
    "aten::cholesky_inverse",
    "aten::cholesky_solve",
    "aten::cross_entropy_loss",
    "aten::ctc_loss",
    "aten::embedding",
    "aten::embedding_bag",
    "aten::gather",
    "aten::histc",
    "aten::index",
    "aten::index_add",
    "aten::index_copy",
    "aten::index_fill",
    "aten::index_put",
    "aten::index_reduce",
    "aten::index_select",
    "aten::inverse",
    "aten::lu_unpack",
    "aten::masked_scatter",
    "aten::matrix_power",
    "aten::max_unpool2d",
    "aten::max_unpool3d",
    "aten::multi_margin_loss",
    "aten::multilabel_margin_loss",
    "aten::nll_loss",
    "aten::nll_loss2d",
    "aten::nll_loss_nd",
    "aten::one_hot",
    "aten::orgqr",
    "aten::ormqr",
    "aten::pinverse",
    "aten::put",
    "aten::repeat_interleave",
    "aten::scatter",
    "aten::scatter_add",
    "aten::scatter_reduce",
    "aten::searchsorted",
    "aten::svd",
    "aten::take",
    "aten::take_along_dim",
    "aten::triangular_solve",
};
static_assert(std::ranges::is_sorted(kNames));

/// Of integers, a division by zero is an error.
constexpr std::string_view kDivisions[] = {"aten::div", "aten::divide", "aten::floor_divide", "aten::fmod",
                                           "aten::remainder"};

}  // namespace

bool may_raise_for_data(const Trace& trace, const BoundSymbol& symbol) {
  const std::string& name = symbol.op->name;
  if (name.starts_with("aten::linalg_") || std::ranges::binary_search(kNames, name)) return true;
  if (std::ranges::find(kDivisions, name) == std::end(kDivisions)) return false;
  return std::ranges::any_of(flat_results(symbol), [&](ValueId id) {
    const TensorType* type = id == kNoValue ? nullptr : trace.tensor_type(id);
    return type != nullptr && !is_floating_point(type->dtype) && !is_complex(type->dtype);
  });
}

}  // namespace thunder::ir
