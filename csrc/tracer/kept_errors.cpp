#include "tracer/kept_errors.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/symbol_values.h"
#include "tracer/operators.h"

namespace thunder::tracer {
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

bool may_raise(const ir::Trace& trace, const ir::BoundSymbol& symbol, ir::ValueId result) {
  const std::string& name = symbol.op->name;
  if (name.starts_with("aten::linalg_") || std::ranges::binary_search(kNames, name)) return true;
  const ir::Dtype dtype = trace.tensor_type(result)->dtype;
  const bool is_integer = !ir::is_floating_point(dtype) && !ir::is_complex(dtype);
  return is_integer && std::ranges::find(kDivisions, name) != std::end(kDivisions);
}

/// The first tensor among results; kNoValue: there is none.
ir::ValueId first_tensor(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    if (id != ir::kNoValue && trace.tensor_type(id) != nullptr) return id;
  }
  return ir::kNoValue;
}

/// An operation without a result that needs `value`, and asks nothing of it.
ir::BoundSymbol need(ir::ValueId value, const ir::SourceLocation& location) {
  ir::BoundSymbol symbol;
  symbol.op = find_operator("aten::_assert_tensor_metadata", "");
  symbol.arguments.assign(symbol.op->parameters.size(), ir::Argument(ir::None{}));
  symbol.arguments[0] = ir::Argument(value);
  symbol.location = location;
  symbol.comment = "it may raise an error";
  return symbol;
}

}  // namespace

void keep_errors(ir::Trace& trace) {
  std::vector<bool> needed(trace.value_count(), false);
  const auto add_needs = [&](const ir::ArgumentList& arguments) {
    for (const ir::Argument& argument : arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) { needed[ir::index_of(id)] = true; });
    }
  };
  const auto is_needed = [&](ir::ValueId id) { return id != ir::kNoValue && needed[ir::index_of(id)]; };
  add_needs(trace.outputs);
  std::vector<ir::ValueId> kept(trace.symbols.size(), ir::kNoValue);
  bool has_kept = false;
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    bool runs = symbol.op->mutates || symbol.op->effect || std::ranges::any_of(ir::flat_results(symbol), is_needed);
    if (!runs) {
      const ir::ValueId result = first_tensor(trace, symbol);
      runs = result != ir::kNoValue && may_raise(trace, symbol, result);
      if (runs) kept[i] = result;
      has_kept |= runs;
    }
    if (runs) add_needs(symbol.arguments);
  }
  if (!has_kept) return;
  std::vector<ir::BoundSymbol> symbols = std::exchange(trace.symbols, {});
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const ir::SourceLocation location = symbols[i].location;
    trace.add(std::move(symbols[i]));
    if (kept[i] != ir::kNoValue) trace.add(need(kept[i], location));
  }
}

}  // namespace thunder::tracer
