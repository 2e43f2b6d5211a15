// The negative log likelihood of rows, and the cross entropy.
#include <optional>
#include <string_view>
#include <unordered_map>

#include "fusion/operations.h"
#include "fusion/rowwise.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {
namespace {

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
  /// Rows of scores (`[N, C]` or `[N, C, H, W]`), all of the same weight, that become one number. Kernels of PyTorch
  /// differ by version in which classes they take that are not 64-bit integers, and raise for the others.
  [[nodiscard]] bool are_plain(const BoundSymbol& symbol, const Trace& trace) const {
    const ir::TensorType* scores = argument_type(symbol, trace, first);
    const ir::TensorType* classes = argument_type(symbol, trace, target());
    if (classes == nullptr || classes->dtype != ir::Dtype::kInt64) return false;
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

}  // namespace

void add_losses(std::unordered_map<std::string_view, Operation>& table) {
  table.insert({
      {"aten::nll_loss_forward", {&nll_loss_role, &lower_nll_loss}},
      {"aten::nll_loss_backward", {&nll_loss_backward_role, &lower_nll_loss_backward}},
      {"aten::nll_loss2d_forward", {&nll_loss_role, &lower_nll_loss}},
      {"aten::nll_loss2d_backward", {&nll_loss_backward_role, &lower_nll_loss_backward}},
      {"aten::cross_entropy_loss", {&cross_entropy_role, &lower_cross_entropy}},
  });
}

}  // namespace thunder::fusion
