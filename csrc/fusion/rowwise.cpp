#include "fusion/rowwise.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

Value sum_of_rows(Lowering& lowering, Value value) {
  return lowering.graph().reduce(Reduction::kSum, lowering.graph().expand(value));
}

Value mean_of_rows(Lowering& lowering, Value value, const ir::Dim& columns) {
  const Value sum = sum_of_rows(lowering, value);
  const Value count = lowering.number(lowering.graph().type(sum), columns);
  return lowering.apply(ElementOp::kDivide, {sum, count});
}

FusionRole rows_along_role(const BoundSymbol& symbol, const Trace& trace, std::size_t dim_argument,
                           const Target& target) {
  const ir::ValueId over = passes::single_result(symbol);
  const ir::TensorType* type = trace.tensor_type(over);
  const auto* dim = symbol.arguments[dim_argument].get<std::int64_t>();
  if (!is_float(type) || dim == nullptr || type->sizes.empty()) return {};
  return dim_role(symbol, trace, over, *dim, kRowWork, target);
}

namespace {

// --- sum, mean, amax, amin, var

template <bool has_dims>
FusionRole sum_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  static const ir::Argument kAll;
  if (!is_float(argument_type(symbol, trace, 0)) || !is_float(result_type(symbol, trace))) return {};
  FusionRole role = reduction_role(symbol, trace, has_dims ? symbol.arguments[1] : kAll, /*rows_only=*/false, target);
  const bool sums_rows = role.rows != 0 && !role.results.empty() && role.results[0] == FusionRole::Result::kEnd;
  if (sums_rows && target.sums_rows_alone) role.work = kRowWork;
  return role;
}
/// The role of a reduction of rows; none where it reduces columns.
FusionRole row_reduction_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  if (!is_float(argument_type(symbol, trace, 0))) return {};
  return reduction_role(symbol, trace, symbol.arguments[1], /*rows_only=*/true, target);
}

template <bool has_dims, bool is_mean>
void lower_sum(Lowering& lowering, const BoundSymbol& symbol) {
  const FusionRole& role = lowering.role(symbol);
  const Value value = lowering.argument(symbol, 0, lowering.result_type_of(symbol));
  const ir::Dim count =
      floor_divide(product_of(lowering.type(symbol, 0)->sizes), product_of(lowering.result_type(symbol).sizes));
  const ir::SizeRatio scale{.denominator = is_mean ? count : ir::Dim(1)};
  if (role.results[0] == FusionRole::Result::kRows) {
    lowering.set(symbol, 0, is_mean ? mean_of_rows(lowering, value, count) : sum_of_rows(lowering, value));
  } else if (role.rows == ir::Dim(0)) {
    lowering.set_total(symbol, 0, value, scale, std::nullopt);
  } else {
    lowering.set_column_sum(symbol, 0, value, scale);
  }
}
template <Reduction op>
void lower_extreme(Lowering& lowering, const BoundSymbol& symbol) {
  const Value value = lowering.argument(symbol, 0, lowering.result_type_of(symbol));
  lowering.set(symbol, 0, lowering.graph().reduce(op, lowering.graph().expand(value)));
}

/// The role of a variance of rows or of columns. Alone, too, it is worth a fusion: PyTorch's kernel takes one element
/// after the other.
FusionRole variance_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  if (!is_float(argument_type(symbol, trace, 0))) return {};
  FusionRole role = reduction_role(symbol, trace, symbol.arguments[1], /*rows_only=*/false, target);
  role.work = kRowWork;
  return role.rows == ir::Dim(0) ? FusionRole{} : role;
}
double correction_of(const ir::Argument& given) {  // a number, or whether it is unbiased
  if (const auto* integer = given.get<std::int64_t>()) return static_cast<double>(*integer);
  if (const auto* real = given.get<double>()) return *real;
  const auto* is_unbiased = given.get<bool>();
  return is_unbiased == nullptr || *is_unbiased ? 1 : 0;
}
/// The variance is the first result; the mean, if it is asked for, the second one.
void lower_variance(Lowering& lowering, const BoundSymbol& symbol) {
  const ir::TensorType& type = *lowering.type(symbol, 0);
  const FusionRole& role = lowering.role(symbol);
  const auto mean = symbol.results.size() > 1 ? std::make_optional<std::size_t>(1) : std::nullopt;
  const ComputeType compute = compute_type(type.dtype);
  const Value x = lowering.graph().expand(lowering.argument(symbol, 0, compute));
  const bool is_of_rows = role.results[0] == FusionRole::Result::kRows;
  const ir::Dim count =
      is_of_rows ? floor_divide(product_of(type.sizes), role.rows) : floor_divide(role.rows, role.blocks);
  const ir::SizeRatio scale{1, count, count, correction_of(symbol.arguments[2])};
  if (!is_of_rows) return lowering.set_column_moments(symbol, mean, 0, x, scale);
  const auto [mean_of_row, variance] = lowering.graph().moments(x, 0);  // a norm of the same rows needs it, too
  lowering.set(symbol, 0, lowering.apply(ElementOp::kMultiply, {variance, lowering.number(compute, scale)}));
  if (mean) lowering.set(symbol, *mean, mean_of_row);
}

// --- softmax

FusionRole softmax_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  return rows_along_role(symbol, trace, 1, target);
}
FusionRole softmax_backward_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  return rows_along_role(symbol, trace, 2, target);
}

struct Exponentials {
  Value shifted;
  Value exponentials;
  Value sum;
  Value largest;
};
Exponentials exponentials_of(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const Value x = graph.expand(lowering.argument(symbol, 0, lowering.result_type_of(symbol)));
  const Value largest = graph.reduce(Reduction::kMax, x);
  const Value shifted = lowering.apply(ElementOp::kSubtract, {x, largest});
  graph.set_difference(shifted, x, largest);
  const Value exponentials = lowering.apply(ElementOp::kExp, {shifted});
  return {shifted, exponentials, graph.reduce(Reduction::kSum, exponentials), largest};
}
/// Alone, too, it is worth a fusion: PyTorch goes over its argument three times.
FusionRole logsumexp_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  FusionRole role = row_reduction_role(symbol, trace, target);
  role.work = kRowWork;
  return role;
}
/// In a row whose largest element is infinite, nothing is subtracted: that would give NaN.
void lower_logsumexp(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value x = graph.expand(lowering.argument(symbol, 0, compute));
  const Value largest = graph.reduce(Reduction::kMax, x);
  const Value is_infinite = lowering.apply(
      ElementOp::kEqual,
      {lowering.apply(ElementOp::kAbs, {largest}), lowering.number(compute, std::numeric_limits<double>::infinity())});
  const Value shift = lowering.apply(ElementOp::kWhere, {is_infinite, lowering.number(compute, 0), largest});
  const Value shifted = lowering.apply(ElementOp::kSubtract, {x, shift});
  const Value sum = graph.reduce(Reduction::kSum, lowering.apply(ElementOp::kExp, {shifted}));
  lowering.set(symbol, 0, lowering.apply(ElementOp::kAdd, {lowering.apply(ElementOp::kLog, {sum}), shift}));
}
void lower_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  lowering.set(symbol, 0, lowering.apply(ElementOp::kDivide, {parts.exponentials, parts.sum}));
}
/// Rows of which all is masked are zeros.
void lower_safe_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value is_masked = lowering.apply(
      ElementOp::kEqual, {parts.largest, lowering.number(compute, -std::numeric_limits<double>::infinity())});
  const Value divided = lowering.apply(ElementOp::kDivide, {parts.exponentials, parts.sum});
  lowering.set(symbol, 0, lowering.apply(ElementOp::kWhere, {is_masked, lowering.number(compute, 0), divided}));
}
void lower_log_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  lowering.set(symbol, 0, log_probabilities(lowering, symbol));
}
void lower_softmax_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value cotangent = lowering.argument(symbol, 0, compute);
  const Value output = lowering.graph().expand(lowering.argument(symbol, 1, compute));
  const Value product = lowering.apply(ElementOp::kMultiply, {cotangent, output});
  const Value sum = lowering.graph().reduce(Reduction::kSum, product);
  const Value rest = lowering.apply(ElementOp::kSubtract, {lowering.graph().expand(cotangent), sum});
  lowering.set(symbol, 0, lowering.apply(ElementOp::kMultiply, {rest, output}));
}
void lower_log_softmax_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value cotangent = lowering.graph().expand(lowering.argument(symbol, 0, compute));
  const Value output = lowering.graph().expand(lowering.argument(symbol, 1, compute));
  const Value sum = lowering.graph().reduce(Reduction::kSum, cotangent);
  const Value share = lowering.apply(ElementOp::kMultiply, {lowering.apply(ElementOp::kExp, {output}), sum});
  lowering.set(symbol, 0, lowering.apply(ElementOp::kSubtract, {cotangent, share}));
}

}  // namespace

Value log_probabilities(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const Value logarithm = lowering.apply(ElementOp::kLog, {parts.sum});
  const Value result = lowering.apply(ElementOp::kSubtract, {parts.shifted, logarithm});
  lowering.graph().set_difference(result, parts.shifted, logarithm);
  return result;
}

void add_rowwise(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::sum.dim_IntList", {&sum_role<true>, &lower_sum<true, false>}},
      {"aten::sum", {&sum_role<false>, &lower_sum<false, false>}},
      {"aten::mean.dim", {&sum_role<true>, &lower_sum<true, true>}},
      {"aten::mean", {&sum_role<false>, &lower_sum<false, true>}},
      {"aten::amax", {&row_reduction_role, &lower_extreme<Reduction::kMax>}},
      {"aten::amin", {&row_reduction_role, &lower_extreme<Reduction::kMin>}},
      {"aten::logsumexp", {&logsumexp_role, &lower_logsumexp}},
      {"aten::var.correction", {&variance_role, &lower_variance}},
      {"aten::var.dim", {&variance_role, &lower_variance}},
      {"aten::var_mean.correction", {&variance_role, &lower_variance}},
      {"aten::var_mean.dim", {&variance_role, &lower_variance}},
      {"aten::_softmax", {&softmax_role, &lower_softmax}},
      {"aten::_safe_softmax", {&softmax_role, &lower_safe_softmax}},
      {"aten::_log_softmax", {&softmax_role, &lower_log_softmax}},
      {"aten::softmax.int", {&softmax_role, &lower_softmax}},
      {"aten::log_softmax.int", {&softmax_role, &lower_log_softmax}},
      {"aten::_softmax_backward_data", {&softmax_backward_role, &lower_softmax_backward}},
      {"aten::_log_softmax_backward_data", {&softmax_backward_role, &lower_log_softmax_backward}},
  });
}

}  // namespace thunder::fusion
