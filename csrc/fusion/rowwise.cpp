// Operations that need all of a row, or all rows: reductions, softmax, norms, losses.
#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "fusion/lowering.h"
#include "fusion/operations.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

constexpr double kRowWork = 8;

Value sum_of_rows(Lowering& lowering, Value value) {
  return lowering.graph().reduce(Reduction::kSum, lowering.graph().expand(value));
}
Value mean_of_rows(Lowering& lowering, Value value, const ir::Dim& columns) {
  const Value sum = sum_of_rows(lowering, value);
  const Value count = lowering.number(lowering.graph().type(sum), columns);
  return lowering.apply(ElementOp::kDivide, {sum, count});
}

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

/// Rows along `dim` of the result.
FusionRole rows_along_role(const BoundSymbol& symbol, const Trace& trace, std::size_t dim_argument,
                           const Target& target) {
  const ir::ValueId over = passes::single_result(symbol);
  const ir::TensorType* type = over == ir::kNoValue ? nullptr : trace.tensor_type(over);
  const auto* dim = symbol.arguments[dim_argument].get<std::int64_t>();
  if (!is_float(type) || dim == nullptr || type->sizes.empty()) return {};
  return dim_role(symbol, trace, over, *dim, kRowWork, target);
}
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
Value log_probabilities(Lowering& lowering, const BoundSymbol& symbol) {
  const Exponentials parts = exponentials_of(lowering, symbol);
  const Value logarithm = lowering.apply(ElementOp::kLog, {parts.sum});
  const Value result = lowering.apply(ElementOp::kSubtract, {parts.shifted, logarithm});
  lowering.graph().set_difference(result, parts.shifted, logarithm);
  return result;
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

// --- layer norm, group norm, RMS norm

FusionRole layer_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
  const auto* shape = symbol.arguments[1].get<ir::ArgumentList>();
  if (shape == nullptr || !is_float(argument_type(symbol, trace, 0))) return {};
  return row_role(symbol, trace, passes::value_argument(symbol, 0), shape->size(), kRowWork);
}
/// `1 / sqrt(variance + epsilon)`.
Value reciprocal_root(Lowering& lowering, const BoundSymbol& symbol, Value variance, std::size_t epsilon) {
  const Value added = lowering.argument(symbol, epsilon, lowering.graph().type(variance));
  return lowering.apply(ElementOp::kRsqrt, {lowering.apply(ElementOp::kAdd, {variance, added})});
}
/// Mean and deviation of each row, and their elements without them, by arguments for the elements of a row.
void lower_norm(Lowering& lowering, const BoundSymbol& symbol, std::size_t weight, std::size_t bias,
                std::size_t epsilon) {
  const Value x = lowering.graph().expand(lowering.argument(symbol, 0, lowering.result_type_of(symbol)));
  const auto [mean, variance] = lowering.graph().moments(x, 0);
  const Value rstd = reciprocal_root(lowering, symbol, variance, epsilon);
  const Value normal = lowering.apply(ElementOp::kMultiply, {lowering.apply(ElementOp::kSubtract, {x, mean}), rstd});
  const Value scaled = lowering.apply_if_given(ElementOp::kMultiply, normal, symbol, weight);
  lowering.set(symbol, 0, lowering.apply_if_given(ElementOp::kAdd, scaled, symbol, bias));
  if (symbol.results.size() == 1) return;  // as the program called it
  lowering.set(symbol, 1, mean);
  lowering.set(symbol, 2, rstd);
}
void lower_layer_norm(Lowering& lowering, const BoundSymbol& symbol) { lower_norm(lowering, symbol, 2, 3, 4); }

/// Where the two operators of group norms have their arguments.
struct GroupNormArguments {
  std::size_t groups;
  std::size_t weight;
  std::size_t bias;
  std::size_t epsilon;
};
constexpr GroupNormArguments kGroupNorm{1, 2, 3, 4};
constexpr GroupNormArguments kNativeGroupNorm{6, 1, 2, 7};

/// A row is what a group has of an image; the weight and the bias step through it a channel at a time. By itself it is
/// not worth a fusion: PyTorch's kernel reads a row twice and writes it once, too.
template <const GroupNormArguments& at>
FusionRole group_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
  const ir::TensorType* x = argument_type(symbol, trace, 0);
  const auto* groups = symbol.arguments[at.groups].get<std::int64_t>();
  if (x == nullptr || groups == nullptr || x->sizes.size() < 3 || !is_float(x)) return {};
  const ir::Dim rows = x->sizes[0] * ir::Dim(*groups);
  FusionRole role = rows_role(symbol, trace, passes::value_argument(symbol, 0), rows, 1);
  role.by_channels = 1U << at.weight | 1U << at.bias;
  return role;
}
template <const GroupNormArguments& at>
void lower_group_norm(Lowering& lowering, const BoundSymbol& symbol) {
  lower_norm(lowering, symbol, at.weight, at.bias, at.epsilon);
}

// --- batch norm of contiguous images in training

/// A row is what a channel has of all images; `per_channel` has a bit for each argument that is one element for each.
FusionRole batch_norm_role(const BoundSymbol& symbol, const Trace& trace, std::size_t input, std::uint32_t per_channel,
                           double work, const Target& target) {
  const ir::TensorType* x = argument_type(symbol, trace, input);
  if (!is_float(x) || x->sizes.size() < 3) return {};
  const ir::Dim channels = x->sizes[1];
  FusionRole role = rows_role(symbol, trace, passes::value_argument(symbol, input), channels, work);
  role.before = x->sizes[0];
  role.by_channels = per_channel;
  const bool has_long_runs = passes::element_count(*x) / (role.before.hint * channels.hint) >= target.least_run;
  return has_long_runs ? role : FusionRole{};
}
FusionRole batch_norm_forward_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  return symbol.arguments[3] == ir::Argument(true) ? batch_norm_role(symbol, trace, 0, 0b110, kRowWork, target)
                                                   : FusionRole{};
}
void lower_batch_norm(Lowering& lowering, const BoundSymbol& symbol) { lower_norm(lowering, symbol, 1, 2, 5); }

/// The role of batch norm in training that also updates the running statistics, arguments 3 and 4.
FusionRole running_batch_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const bool is_training = symbol.arguments[5] == ir::Argument(true) && symbol.arguments[6].is<double>();
  return is_training ? batch_norm_role(symbol, trace, 0, 0b11110, kRowWork, target) : FusionRole{};
}
void lower_running_batch_norm(Lowering& lowering, const BoundSymbol& symbol) {
  lower_norm(lowering, symbol, 1, 2, 7);
  const ComputeType compute = lowering.result_type_of(symbol);
  const Value x = lowering.graph().expand(lowering.argument(symbol, 0, compute));
  const double momentum = std::get<double>(symbol.arguments[6].content);
  const ir::Dim count = floor_divide(product_of(lowering.type(symbol, 0)->sizes), lowering.role(symbol).rows);
  const auto [mean, variance] = lowering.graph().moments(x, 0);
  const auto move = [&](std::size_t argument, Value statistic, const ir::SizeRatio& share) {
    const Value kept = lowering.apply(
        ElementOp::kMultiply, {lowering.argument(symbol, argument, compute), lowering.number(compute, 1 - momentum)});
    const Value added = lowering.apply(ElementOp::kMultiply, {statistic, lowering.number(compute, share)});
    lowering.set(symbol, argument, lowering.apply(ElementOp::kAdd, {kept, added}));
  };
  move(3, mean, {.factor = momentum});
  move(4, variance, {momentum, count, count, 1});
}

struct BatchNormBackwardArguments {
  enum : std::size_t { kCotangent, kInput, kWeight, kMean = 5, kDeviation, kTraining };
};
/// By itself not worth a fusion: PyTorch's kernel goes over its inputs twice, too.
FusionRole batch_norm_backward_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  using At = BatchNormBackwardArguments;
  if (symbol.arguments[At::kTraining] != ir::Argument(true)) return {};
  return batch_norm_role(symbol, trace, At::kInput, 1U << At::kWeight | 1U << At::kMean | 1U << At::kDeviation, 1,
                         target);
}
void lower_batch_norm_backward(Lowering& lowering, const BoundSymbol& symbol) {
  using At = BatchNormBackwardArguments;
  KernelGraph& graph = lowering.graph();
  const ir::TensorType& type = *lowering.type(symbol, At::kInput);
  const ComputeType compute = compute_type(type.dtype);
  const Value cotangent = graph.expand(lowering.argument(symbol, At::kCotangent, compute));
  const Value x = graph.expand(lowering.argument(symbol, At::kInput, compute));
  const Value rstd = lowering.argument(symbol, At::kDeviation, compute);
  const Value centered = lowering.apply(ElementOp::kSubtract, {x, lowering.argument(symbol, At::kMean, compute)});
  const Value sum = graph.reduce(Reduction::kSum, cotangent);
  const Value product = graph.reduce(Reduction::kSum, lowering.apply(ElementOp::kMultiply, {cotangent, centered}));
  const Value of_weight = lowering.apply(ElementOp::kMultiply, {product, rstd});
  if (lowering.is_read(symbol, 0)) {
    const ir::Dim count = floor_divide(product_of(type.sizes), lowering.role(symbol).rows);
    const auto mean_of = [&](Value total) {
      return lowering.apply(ElementOp::kDivide, {total, lowering.number(compute, count)});
    };
    const Value scale = lowering.apply_if_given(ElementOp::kMultiply, rstd, symbol, At::kWeight);
    const Value slope = mean_of(lowering.apply(ElementOp::kMultiply, {of_weight, rstd}));
    const Value rest = lowering.apply(ElementOp::kSubtract, {cotangent, mean_of(sum)});
    const Value scaled = lowering.apply(ElementOp::kMultiply, {rest, scale});
    const Value along =
        lowering.apply(ElementOp::kMultiply, {centered, lowering.apply(ElementOp::kMultiply, {slope, scale})});
    lowering.set(symbol, 0, lowering.apply(ElementOp::kSubtract, {scaled, along}));
  }
  if (lowering.is_read(symbol, 1)) lowering.set(symbol, 1, of_weight);
  if (lowering.is_read(symbol, 2)) lowering.set(symbol, 2, sum);
}

FusionRole rms_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  return symbol.arguments[3].is<double>() ? layer_norm_role(symbol, trace, target) : FusionRole{};
}
void lower_rms_norm(Lowering& lowering, const BoundSymbol& symbol) {
  const Value x = lowering.graph().expand(lowering.argument(symbol, 0, lowering.result_type_of(symbol)));
  const ir::Dim columns = floor_divide(product_of(lowering.type(symbol, 0)->sizes), lowering.role(symbol).rows);
  const Value mean = mean_of_rows(lowering, lowering.apply(ElementOp::kSquare, {x}), columns);
  const Value normal = lowering.apply(ElementOp::kMultiply, {x, reciprocal_root(lowering, symbol, mean, 3)});
  lowering.set(symbol, 0, lowering.apply_if_given(ElementOp::kMultiply, normal, symbol, 2));
}

FusionRole layer_norm_backward_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
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
  return role.rows.hint > 1 ? role : FusionRole{};
}
void lower_layer_norm_backward(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const ir::TensorType& type = *lowering.type(symbol, 1);
  const ComputeType compute = compute_type(type.dtype);
  const Value cotangent = graph.expand(lowering.argument(symbol, 0, compute));
  const Value x = lowering.argument(symbol, 1, compute);
  const Value mean = lowering.argument(symbol, 3, compute);
  const Value rstd = lowering.argument(symbol, 4, compute);
  const Value normal = lowering.apply(
      ElementOp::kMultiply, {graph.expand(lowering.apply(ElementOp::kSubtract, {graph.expand(x), mean})), rstd});
  if (lowering.is_read(symbol, 0)) {
    const Value scaled = lowering.apply_if_given(ElementOp::kMultiply,
                                                 lowering.apply(ElementOp::kMultiply, {cotangent, rstd}), symbol, 5);
    const ir::Dim columns = floor_divide(product_of(type.sizes), lowering.role(symbol).rows);
    const Value mean_of_scaled = mean_of_rows(lowering, scaled, columns);
    const Value product = lowering.apply(ElementOp::kMultiply, {scaled, normal});
    const Value mean_of_product = mean_of_rows(lowering, product, columns);
    Value result = lowering.apply(ElementOp::kSubtract, {scaled, mean_of_scaled});
    result =
        lowering.apply(ElementOp::kSubtract, {result, lowering.apply(ElementOp::kMultiply, {normal, mean_of_product})});
    lowering.set(symbol, 0, result);
  }
  if (lowering.is_read(symbol, 1)) {
    lowering.set_column_sum(symbol, 1, lowering.apply(ElementOp::kMultiply, {cotangent, normal}), {});
  }
  if (lowering.is_read(symbol, 2)) lowering.set_column_sum(symbol, 2, cotangent, {});
}

// --- negative log likelihood, and its scatter

constexpr std::int64_t kMeanReduction = 1;

/// For each row: whether it counts, and the column that it is about, 0 if it does not.
struct Targets {
  Value counts;
  Value columns;
};

/// The arguments of a loss, of which the scores are argument `first`: the target, the weight, the reduction and the
/// target that does not count follow.
struct LossArguments {
  std::size_t first;

  [[nodiscard]] std::size_t target() const { return first + 1; }
  [[nodiscard]] bool is_mean(const BoundSymbol& symbol) const {
    return symbol.arguments[first + 3] == ir::Argument(kMeanReduction);
  }
  /// Rows of scores (`[N, C]` or `[N, C, H, W]`), all of the same weight, that become one number.
  [[nodiscard]] bool are_plain(const BoundSymbol& symbol, const Trace& trace) const {
    const ir::TensorType* scores = argument_type(symbol, trace, first);
    const auto* reduction = symbol.arguments[first + 3].get<std::int64_t>();
    const bool has_weight = !symbol.arguments[first + 2].is<ir::None>();
    const bool has_classes = scores != nullptr && (scores->sizes.size() == 2 || scores->sizes.size() == 4);
    return is_float(scores) && has_classes && !has_weight && reduction != nullptr && *reduction != 0;
  }
  [[nodiscard]] Targets targets(Lowering& lowering, const BoundSymbol& symbol) const {
    const Value target = lowering.argument(symbol, first + 1, ComputeType::kInteger);
    const Value counts =
        lowering.apply(ElementOp::kNotEqual, {target, lowering.argument(symbol, first + 4, ComputeType::kInteger)});
    return {counts, lowering.apply(ElementOp::kWhere, {counts, target, lowering.number(ComputeType::kInteger, 0)})};
  }
};
constexpr LossArguments kForward{0};
constexpr LossArguments kBackward{1};  // after the cotangent

FusionRole nll_loss_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  if (!kForward.are_plain(symbol, trace)) return {};
  BoundSymbol none = symbol;  // its results are known at the end
  none.results.clear();
  FusionRole role = dim_role(none, trace, passes::value_argument(symbol, 0), 1, 1, target);
  if (role.rows.hint < 2) return {};
  role.by_rows = 1U << kForward.target();
  passes::for_each_result(symbol, [&](ir::ValueId) { role.results.push_back(FusionRole::Result::kEnd); });
  return role;
}
/// `scores` are logarithms of probabilities.
void lower_loss(Lowering& lowering, const BoundSymbol& symbol, Value scores) {
  KernelGraph& graph = lowering.graph();
  const ComputeType compute = graph.type(scores);
  const auto [counts, columns] = kForward.targets(lowering, symbol);
  const Value loss = lowering.apply(ElementOp::kNegate, {graph.pick(scores, columns)});
  const Value counted = lowering.apply(ElementOp::kWhere, {counts, loss, lowering.number(compute, 0)});
  const Value one = graph.convert(counts, compute);
  const std::uint32_t weight =
      symbol.results.size() > 1 ? lowering.set_total(symbol, 1, one, {}, std::nullopt) : lowering.add_total(one);
  lowering.set_total(symbol, 0, counted, {}, kForward.is_mean(symbol) ? std::make_optional(weight) : std::nullopt);
}

void lower_nll_loss(Lowering& lowering, const BoundSymbol& symbol) {
  const ComputeType compute = compute_type(lowering.type(symbol, 0)->dtype);
  lower_loss(lowering, symbol, lowering.graph().expand(lowering.argument(symbol, 0, compute)));
}

FusionRole nll_loss_backward_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  if (!kBackward.are_plain(symbol, trace)) return {};
  FusionRole role = dim_role(symbol, trace, passes::single_result(symbol), 1, 1, target);
  role.by_rows = 1U << kBackward.target();
  return role;
}
/// Zeros, but for one element of each row that counts.
void lower_nll_loss_backward(Lowering& lowering, const BoundSymbol& symbol) {
  KernelGraph& graph = lowering.graph();
  const ComputeType compute = lowering.result_type_of(symbol);
  Value share = lowering.apply(ElementOp::kNegate, {lowering.argument(symbol, 0, compute)});
  if (kBackward.is_mean(symbol)) {
    share = lowering.apply(ElementOp::kDivide, {share, lowering.argument(symbol, 6, compute)});
  }
  const auto [counts, columns] = kBackward.targets(lowering, symbol);
  const Value added = lowering.apply(ElementOp::kWhere, {counts, share, lowering.number(compute, 0)});
  lowering.set(symbol, 0, graph.scatter_add(graph.expand(lowering.number(compute, 0)), columns, added));
}

FusionRole cross_entropy_role(const BoundSymbol& symbol, const Trace& trace, const Target& target) {
  const ir::TensorType* labels = argument_type(symbol, trace, 1);
  const ir::TensorType* scores = argument_type(symbol, trace, 0);
  const bool has_classes =
      labels != nullptr && scores != nullptr && !is_float(labels) && labels->sizes.size() + 1 == scores->sizes.size();
  if (!has_classes || symbol.arguments[5] != ir::Argument(0.0)) return {};
  FusionRole role = nll_loss_role(symbol, trace, target);
  role.work = kRowWork;
  return role;
}
void lower_cross_entropy(Lowering& lowering, const BoundSymbol& symbol) {
  lower_loss(lowering, symbol, log_probabilities(lowering, symbol));
}

// --- rows of a matrix, chosen by indices

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
  return symbol.arguments[1] == ir::Argument(0) ? gather_role<0, 2>(symbol, trace, target) : FusionRole{};
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
      {"aten::native_layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::group_norm", {&group_norm_role<kGroupNorm>, &lower_group_norm<kGroupNorm>}},
      {"aten::native_group_norm", {&group_norm_role<kNativeGroupNorm>, &lower_group_norm<kNativeGroupNorm>}},
      {"aten::_native_batch_norm_legit.no_stats", {&batch_norm_forward_role, &lower_batch_norm}},
      {"aten::_native_batch_norm_legit_functional", {&running_batch_norm_role, &lower_running_batch_norm}},
      {"aten::native_batch_norm_backward", {&batch_norm_backward_role, &lower_batch_norm_backward}},
      {"aten::rms_norm", {&rms_norm_role, &lower_rms_norm}},
      {"aten::native_layer_norm_backward", {&layer_norm_backward_role, &lower_layer_norm_backward}},
      {"aten::nll_loss_forward", {&nll_loss_role, &lower_nll_loss}},
      {"aten::nll_loss_backward", {&nll_loss_backward_role, &lower_nll_loss_backward}},
      {"aten::nll_loss2d_forward", {&nll_loss_role, &lower_nll_loss}},
      {"aten::nll_loss2d_backward", {&nll_loss_backward_role, &lower_nll_loss_backward}},
      {"aten::cross_entropy_loss", {&cross_entropy_role, &lower_cross_entropy}},
      {"aten::embedding", {&gather_role<0, 1>, &lower_embedding}},
      {"aten::index_select", {&index_select_role, &lower_index_select}},
      {"aten::index.Tensor", {&gather_role<0, 1>, &lower_index}},
      {"aten::scatter_add", {&scatter_add_role, &lower_scatter_add}},
  });
}

}  // namespace thunder::fusion
