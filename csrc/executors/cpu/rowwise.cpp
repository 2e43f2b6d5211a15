// Operations that know whole rows, or all of them: reductions, softmax, norms, losses.
#include <limits>
#include <string_view>
#include <unordered_map>

#include "executors/cpu/operations.h"
#include "executors/cpu/roles.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

using ir::BoundSymbol;
using ir::Trace;
using passes::FusionRole;
using Value = Lowering::Value;

constexpr double kRowWork = 8;

bool is_float(const ir::TensorType* type) { return type != nullptr && *storage_of(type->dtype) >= Storage::kHalf; }
const ir::TensorType* argument_type(const BoundSymbol& symbol, const Trace& trace, std::size_t i) {
  const ir::ValueId id = passes::value_argument(symbol, i);
  return id == ir::kNoValue ? nullptr : trace.tensor_type(id);
}
std::int64_t columns_of(const ir::TensorType& type, std::int64_t rows) { return passes::element_count(type) / rows; }

// --- sum, mean, amax, amin

template <bool has_dims>
FusionRole sum_role(const BoundSymbol& symbol, const Trace& trace) {
  static const ir::Argument kAll;
  const ir::TensorType* type = argument_type(symbol, trace, 0);
  if (!is_float(type) || !is_float(trace.tensor_type(passes::single_result(symbol)))) return {};
  return reduction_role(symbol, trace, has_dims ? symbol.arguments[1] : kAll, /*rows_only=*/false);
}
FusionRole extreme_role(const BoundSymbol& symbol, const Trace& trace) {
  if (!is_float(argument_type(symbol, trace, 0))) return {};
  return reduction_role(symbol, trace, symbol.arguments[1], /*rows_only=*/true);
}

template <bool has_dims, bool is_mean>
void lower_sum(Lowering& lowering, const BoundSymbol& symbol) {
  const ir::TensorType& type = *lowering.type(symbol, 0);
  const ir::TensorType& result = lowering.result_type(symbol);
  const FusionRole role = lowering.role(symbol);
  const Lane lane = lowering.result_lane(symbol);
  const Value value = lowering.argument(symbol, 0, lane);
  const double count = static_cast<double>(passes::element_count(type) / passes::element_count(result));
  if (role.results[0] == FusionRole::Result::kEnd) {
    const double scale = is_mean ? 1 / count : 1;
    if (role.rows == 0) {
      lowering.set_total(symbol, 0, value, scale, std::nullopt);
    } else {
      lowering.set_column_sum(symbol, 0, value, scale);
    }
    return;
  }
  Value sum = lowering.builder().reduce(ReduceOp::kSum, lowering.builder().expand(value));
  if (is_mean) sum = lowering.apply(TileOp::kDivide, {sum, lowering.number(lane, count)});
  lowering.set(symbol, 0, sum);
}
template <ReduceOp op>
void lower_extreme(Lowering& lowering, const BoundSymbol& symbol) {
  const Value value = lowering.argument(symbol, 0, lowering.result_lane(symbol));
  lowering.set(symbol, 0, lowering.builder().reduce(op, lowering.builder().expand(value)));
}

// --- softmax

/// `dim` is the last one.
FusionRole last_dim_role(const BoundSymbol& symbol, const Trace& trace, std::size_t dim_argument) {
  const ir::ValueId over = passes::single_result(symbol);
  const ir::TensorType* type = trace.tensor_type(over);
  if (!is_float(type)) return {};
  const auto* dim = symbol.arguments[dim_argument].get<std::int64_t>();
  if (dim == nullptr || wrap_dim(*dim, type->sizes.size()) + 1 != type->sizes.size()) return {};
  return row_role(symbol, trace, over, 1, kRowWork);
}
FusionRole softmax_role(const BoundSymbol& symbol, const Trace& trace) { return last_dim_role(symbol, trace, 1); }
FusionRole softmax_backward_role(const BoundSymbol& symbol, const Trace& trace) {
  return last_dim_role(symbol, trace, 2);
}

struct Exponentials {
  Value shifted;
  Value exponentials;
  Value sum;
  Value largest;
};
Exponentials exponentials_of(Lowering& lowering, const BoundSymbol& symbol) {
  TileBuilder& builder = lowering.builder();
  const Value x = builder.expand(lowering.argument(symbol, 0, lowering.result_lane(symbol)));
  const Value largest = builder.reduce(ReduceOp::kMax, x);
  const Value shifted = lowering.apply(TileOp::kSubtract, {x, largest});
  const Value exponentials = lowering.apply(TileOp::kExp, {shifted});
  return {shifted, exponentials, builder.reduce(ReduceOp::kSum, exponentials), largest};
}
void lower_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  lowering.set(symbol, 0, lowering.apply(TileOp::kDivide, {parts.exponentials, parts.sum}));
}
/// Rows of which all is masked are zeros.
void lower_safe_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const Lane lane = lowering.result_lane(symbol);
  const Value is_masked =
      lowering.apply(TileOp::kEqual, {parts.largest, lowering.number(lane, -std::numeric_limits<double>::infinity())});
  const Value divided = lowering.apply(TileOp::kDivide, {parts.exponentials, parts.sum});
  lowering.set(symbol, 0, lowering.apply(TileOp::kWhere, {is_masked, lowering.number(lane, 0), divided}));
}
void lower_log_softmax(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const Value log_sum = lowering.apply(TileOp::kLog, {parts.sum});
  lowering.set(symbol, 0, lowering.apply(TileOp::kSubtract, {parts.shifted, log_sum}));
}
void lower_softmax_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value cotangent = lowering.argument(symbol, 0, lane);
  const Value output = lowering.builder().expand(lowering.argument(symbol, 1, lane));
  const Value product = lowering.apply(TileOp::kMultiply, {cotangent, output});
  const Value sum = lowering.builder().reduce(ReduceOp::kSum, product);
  const Value rest = lowering.apply(TileOp::kSubtract, {lowering.builder().expand(cotangent), sum});
  lowering.set(symbol, 0, lowering.apply(TileOp::kMultiply, {rest, output}));
}
void lower_log_softmax_backward(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value cotangent = lowering.builder().expand(lowering.argument(symbol, 0, lane));
  const Value output = lowering.builder().expand(lowering.argument(symbol, 1, lane));
  const Value sum = lowering.builder().reduce(ReduceOp::kSum, cotangent);
  const Value share = lowering.apply(TileOp::kMultiply, {lowering.apply(TileOp::kExp, {output}), sum});
  lowering.set(symbol, 0, lowering.apply(TileOp::kSubtract, {cotangent, share}));
}

// --- layer norm

FusionRole layer_norm_role(const BoundSymbol& symbol, const Trace& trace) {
  const auto* shape = symbol.arguments[1].get<ir::ArgumentList>();
  if (shape == nullptr || !is_float(argument_type(symbol, trace, 0))) return {};
  return row_role(symbol, trace, passes::value_argument(symbol, 0), shape->size(), kRowWork);
}
void lower_layer_norm(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value x = lowering.builder().expand(lowering.argument(symbol, 0, lane));
  const auto [mean, variance] = lowering.builder().moments(x, 0);
  const Value epsilon = lowering.argument(symbol, 4, lane);
  const Value rstd = lowering.apply(TileOp::kRsqrt, {lowering.apply(TileOp::kAdd, {variance, epsilon})});
  Value y = lowering.apply(TileOp::kSubtract, {x, mean});
  y = lowering.apply(TileOp::kMultiply, {y, rstd});
  if (lowering.has_argument(symbol, 2)) {
    y = lowering.apply(TileOp::kMultiply, {y, lowering.argument(symbol, 2, lane)});
  }
  if (lowering.has_argument(symbol, 3)) {
    y = lowering.apply(TileOp::kAdd, {y, lowering.argument(symbol, 3, lane)});
  }
  lowering.set(symbol, 0, y);
  if (symbol.results.size() == 1) return;  // as the program called it
  lowering.set(symbol, 1, mean);
  lowering.set(symbol, 2, rstd);
}

FusionRole rms_norm_role(const BoundSymbol& symbol, const Trace& trace) {
  return symbol.arguments[3].is<double>() ? layer_norm_role(symbol, trace) : FusionRole{};
}
void lower_rms_norm(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lowering.result_lane(symbol);
  const Value x = lowering.builder().expand(lowering.argument(symbol, 0, lane));
  const Value sum = lowering.builder().reduce(ReduceOp::kSum, lowering.apply(TileOp::kSquare, {x}));
  const auto columns = columns_of(*lowering.type(symbol, 0), lowering.role(symbol).rows);
  const Value mean = lowering.apply(TileOp::kDivide, {sum, lowering.number(lane, static_cast<double>(columns))});
  const Value rstd =
      lowering.apply(TileOp::kRsqrt, {lowering.apply(TileOp::kAdd, {mean, lowering.argument(symbol, 3, lane)})});
  Value y = lowering.apply(TileOp::kMultiply, {x, rstd});
  if (lowering.has_argument(symbol, 2)) {
    y = lowering.apply(TileOp::kMultiply, {y, lowering.argument(symbol, 2, lane)});
  }
  lowering.set(symbol, 0, y);
}

FusionRole layer_norm_backward_role(const BoundSymbol& symbol, const Trace& trace) {
  const auto* shape = symbol.arguments[2].get<ir::ArgumentList>();
  const ir::TensorType* type = argument_type(symbol, trace, 1);
  if (shape == nullptr || !is_float(type)) return {};
  BoundSymbol first = symbol;  // the others are known at the end
  first.results.resize(1);
  FusionRole role = row_role(first, trace, passes::value_argument(symbol, 1), shape->size(), kRowWork);
  if (role.kind == FusionRole::Kind::kNone) return {};
  role.results.clear();
  for (std::size_t i = 0; i < symbol.results.size(); ++i) {
    if (!symbol.results[i].is<ir::ValueId>()) continue;
    role.results.push_back(i == 0 ? FusionRole::Result::kElements : FusionRole::Result::kEnd);
  }
  return role.rows > 1 ? role : FusionRole{};
}
void lower_layer_norm_backward(Lowering& lowering, const BoundSymbol& symbol) {
  TileBuilder& builder = lowering.builder();
  const ir::TensorType& type = *lowering.type(symbol, 1);
  const Lane lane = lane_of(*storage_of(type.dtype));
  const Value cotangent = builder.expand(lowering.argument(symbol, 0, lane));
  const Value x = lowering.argument(symbol, 1, lane);
  const Value mean = lowering.argument(symbol, 3, lane);
  const Value rstd = lowering.argument(symbol, 4, lane);
  const Value normal = lowering.apply(
      TileOp::kMultiply, {builder.expand(lowering.apply(TileOp::kSubtract, {builder.expand(x), mean})), rstd});
  if (lowering.is_read(symbol, 0)) {
    Value scaled = lowering.apply(TileOp::kMultiply, {cotangent, rstd});
    if (lowering.has_argument(symbol, 5)) {
      scaled = lowering.apply(TileOp::kMultiply, {scaled, lowering.argument(symbol, 5, lane)});
    }
    const Value count = lowering.number(lane, static_cast<double>(columns_of(type, lowering.role(symbol).rows)));
    const Value mean_of_scaled = lowering.apply(TileOp::kDivide, {builder.reduce(ReduceOp::kSum, scaled), count});
    const Value product = lowering.apply(TileOp::kMultiply, {scaled, normal});
    const Value mean_of_product = lowering.apply(TileOp::kDivide, {builder.reduce(ReduceOp::kSum, product), count});
    Value result = lowering.apply(TileOp::kSubtract, {scaled, mean_of_scaled});
    result = lowering.apply(TileOp::kSubtract, {result, lowering.apply(TileOp::kMultiply, {normal, mean_of_product})});
    lowering.set(symbol, 0, result);
  }
  if (lowering.is_read(symbol, 1)) {
    lowering.set_column_sum(symbol, 1, lowering.apply(TileOp::kMultiply, {cotangent, normal}), 1);
  }
  if (lowering.is_read(symbol, 2)) lowering.set_column_sum(symbol, 2, cotangent, 1);
}

// --- negative log likelihood, and its scatter

constexpr std::int64_t kMeanReduction = 1;

FusionRole nll_loss_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* type = argument_type(symbol, trace, 0);
  const auto* reduction = symbol.arguments[3].get<std::int64_t>();
  const bool has_weight = !symbol.arguments[2].is<ir::None>();
  if (!is_float(type) || type->sizes.size() != 2 || has_weight || reduction == nullptr || *reduction == 0) return {};
  const std::int64_t rows = type->sizes[0].hint;
  if (!is_contiguous(*type) || rows < 2 || type->sizes[1].hint < 2) return {};
  FusionRole role{FusionRole::Kind::kWork, passes::value_argument(symbol, 0), rows, {}, 1U << 1, 1};
  passes::for_each_result(symbol, [&](ir::ValueId) { role.results.push_back(FusionRole::Result::kEnd); });
  return role;
}
/// `scores` are logarithms of probabilities.
void lower_loss(Lowering& lowering, const BoundSymbol& symbol, Value scores) {
  TileBuilder& builder = lowering.builder();
  const Lane lane = builder.lane(scores);
  const Value target = lowering.argument(symbol, 1, Lane::kInt);
  const Value counts = lowering.apply(TileOp::kNotEqual, {target, lowering.argument(symbol, 4, Lane::kInt)});
  const Value column = lowering.apply(TileOp::kWhere, {counts, target, lowering.number(Lane::kInt, 0)});
  const Value loss = lowering.apply(TileOp::kNegate, {builder.pick(scores, column)});
  const Value counted = lowering.apply(TileOp::kWhere, {counts, loss, lowering.number(lane, 0)});
  const Value one = builder.convert(counts, lane);
  const std::uint32_t weight =
      symbol.results.size() > 1 ? lowering.set_total(symbol, 1, one, 1, std::nullopt) : lowering.add_total(one);
  const bool is_mean = symbol.arguments[3] == ir::Argument(kMeanReduction);
  lowering.set_total(symbol, 0, counted, 1, is_mean ? std::make_optional(weight) : std::nullopt);
}

void lower_nll_loss(Lowering& lowering, const BoundSymbol& symbol) {
  const Lane lane = lane_of(*storage_of(lowering.type(symbol, 0)->dtype));
  lower_loss(lowering, symbol, lowering.builder().expand(lowering.argument(symbol, 0, lane)));
}

FusionRole nll_loss_backward_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* type = argument_type(symbol, trace, 1);
  const auto* reduction = symbol.arguments[4].get<std::int64_t>();
  const bool has_weight = !symbol.arguments[3].is<ir::None>();
  if (!is_float(type) || type->sizes.size() != 2 || has_weight || reduction == nullptr || *reduction == 0) return {};
  FusionRole role = row_role(symbol, trace, passes::single_result(symbol), 1, 1);
  role.by_rows = 1U << 2;
  return role;
}
/// Zeros, but for one element of each row that counts.
void lower_nll_loss_backward(Lowering& lowering, const BoundSymbol& symbol) {
  TileBuilder& builder = lowering.builder();
  const Lane lane = lowering.result_lane(symbol);
  Value share = lowering.apply(TileOp::kNegate, {lowering.argument(symbol, 0, lane)});
  if (symbol.arguments[4] == ir::Argument(kMeanReduction)) {
    share = lowering.apply(TileOp::kDivide, {share, lowering.argument(symbol, 6, lane)});
  }
  const Value target = lowering.argument(symbol, 2, Lane::kInt);
  const Value counts = lowering.apply(TileOp::kNotEqual, {target, lowering.argument(symbol, 5, Lane::kInt)});
  const Value column = lowering.apply(TileOp::kWhere, {counts, target, lowering.number(Lane::kInt, 0)});
  const Value added = lowering.apply(TileOp::kWhere, {counts, share, lowering.number(lane, 0)});
  lowering.set(symbol, 0, builder.scatter_add(builder.expand(lowering.number(lane, 0)), column, added));
}

FusionRole cross_entropy_role(const BoundSymbol& symbol, const Trace& trace) {
  const ir::TensorType* target = argument_type(symbol, trace, 1);
  const bool has_classes = target != nullptr && target->sizes.size() == 1 && !is_float(target);
  if (!has_classes || symbol.arguments[5] != ir::Argument(0.0)) return {};
  FusionRole role = nll_loss_role(symbol, trace);
  role.work = kRowWork;
  return role;
}
void lower_cross_entropy(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const Value log_sum = lowering.apply(TileOp::kLog, {parts.sum});
  lower_loss(lowering, symbol, lowering.apply(TileOp::kSubtract, {parts.shifted, log_sum}));
}

/// One element for each row, added at a column.
FusionRole scatter_add_role(const BoundSymbol& symbol, const Trace& trace) {
  const FusionRole role = last_dim_role(symbol, trace, 1);
  const ir::TensorType* index = argument_type(symbol, trace, 2);
  const ir::TensorType* source = argument_type(symbol, trace, 3);
  if (role.kind == FusionRole::Kind::kNone || index == nullptr || source == nullptr || index->sizes.empty()) return {};
  const auto is_row = [&](const ir::TensorType& type) {
    return type.sizes.size() == trace.tensor_type(role.over)->sizes.size() && type.sizes.back().hint == 1 &&
           passes::element_count(type) == role.rows;
  };
  return is_row(*index) && is_row(*source) ? role : FusionRole{};
}
void lower_scatter_add(Lowering& lowering, const BoundSymbol& symbol) {
  TileBuilder& builder = lowering.builder();
  const Lane lane = lowering.result_lane(symbol);
  const Value added = builder.expand_rows(lowering.argument(symbol, 3, lane));
  lowering.set(symbol, 0,
               builder.scatter_add(builder.expand(lowering.argument(symbol, 0, lane)),
                                   lowering.argument(symbol, 2, Lane::kInt), added));
}

}  // namespace

void add_rowwise(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::sum.dim_IntList", {&sum_role<true>, &lower_sum<true, false>}},
      {"aten::sum", {&sum_role<false>, &lower_sum<false, false>}},
      {"aten::mean.dim", {&sum_role<true>, &lower_sum<true, true>}},
      {"aten::mean", {&sum_role<false>, &lower_sum<false, true>}},
      {"aten::amax", {&extreme_role, &lower_extreme<ReduceOp::kMax>}},
      {"aten::amin", {&extreme_role, &lower_extreme<ReduceOp::kMin>}},
      {"aten::_softmax", {&softmax_role, &lower_softmax}},
      {"aten::_safe_softmax", {&softmax_role, &lower_safe_softmax}},
      {"aten::_log_softmax", {&softmax_role, &lower_log_softmax}},
      {"aten::softmax.int", {&softmax_role, &lower_softmax}},
      {"aten::log_softmax.int", {&softmax_role, &lower_log_softmax}},
      {"aten::_softmax_backward_data", {&softmax_backward_role, &lower_softmax_backward}},
      {"aten::_log_softmax_backward_data", {&softmax_backward_role, &lower_log_softmax_backward}},
      {"aten::native_layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::rms_norm", {&rms_norm_role, &lower_rms_norm}},
      {"aten::native_layer_norm_backward", {&layer_norm_backward_role, &lower_layer_norm_backward}},
      {"aten::nll_loss_forward", {&nll_loss_role, &lower_nll_loss}},
      {"aten::nll_loss_backward", {&nll_loss_backward_role, &lower_nll_loss_backward}},
      {"aten::cross_entropy_loss", {&cross_entropy_role, &lower_cross_entropy}},
      {"aten::scatter_add", {&scatter_add_role, &lower_scatter_add}},
  });
}

}  // namespace thunder::executors::cpu
