// Layer norm, group norm, RMS norm and batch norm, and their derivatives.
#include <optional>
#include <string_view>
#include <unordered_map>

#include "fusion/operations.h"
#include "fusion/rowwise.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

// --- layer norm, group norm, RMS norm

FusionRole row_norm_role(const BoundSymbol& symbol, const Trace& trace) {
  const auto* shape = symbol.arguments[1].get<ir::ArgumentList>();
  if (shape == nullptr || !is_float(argument_type(symbol, trace, 0))) return {};
  return row_role(symbol, trace, passes::value_argument(symbol, 0), shape->size(), kRowWork);
}

/// PyTorch's kernels raise an error for weights of another dtype, but for float32 beside 16 bits.
FusionRole layer_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
  const auto dtype_of = [&](std::size_t i) -> std::optional<ir::Dtype> {
    const auto* id = symbol.arguments[i].get<ir::ValueId>();
    const ir::TensorType* type = id == nullptr ? nullptr : trace.tensor_type(*id);
    return type == nullptr ? std::nullopt : std::optional(type->dtype);
  };
  const std::optional<ir::Dtype> input = dtype_of(0);
  if (!input) return {};
  for (const std::size_t weight : {2U, 3U}) {
    const std::optional<ir::Dtype> dtype = dtype_of(weight);
    if (dtype && dtype != input && !(ir::is_half(*input) && dtype == ir::Dtype::kFloat32)) return {};
  }
  return row_norm_role(symbol, trace);
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

FusionRole rms_norm_role(const BoundSymbol& symbol, const Trace& trace, const Target& /*target*/) {
  return symbol.arguments[3].is<double>() ? row_norm_role(symbol, trace) : FusionRole{};
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

}  // namespace

void add_norms(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::native_layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::layer_norm", {&layer_norm_role, &lower_layer_norm}},
      {"aten::group_norm", {&group_norm_role<kGroupNorm>, &lower_group_norm<kGroupNorm>}},
      {"aten::native_group_norm", {&group_norm_role<kNativeGroupNorm>, &lower_group_norm<kNativeGroupNorm>}},
      {"aten::_native_batch_norm_legit.no_stats", {&batch_norm_forward_role, &lower_batch_norm}},
      {"aten::_native_batch_norm_legit_functional", {&running_batch_norm_role, &lower_running_batch_norm}},
      {"aten::native_batch_norm_backward", {&batch_norm_backward_role, &lower_batch_norm_backward}},
      {"aten::rms_norm", {&rms_norm_role, &lower_rms_norm}},
      {"aten::native_layer_norm_backward", {&layer_norm_backward_role, &lower_layer_norm_backward}},
  });
}

}  // namespace thunder::fusion
