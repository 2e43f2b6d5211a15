#include "ir/stride_rule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>

namespace thunder::ir {

using Kind = StrideRule::Kind;

bool StrideRule::has_free() const {
  return std::ranges::any_of(steps, [](const Step& step) { return step.kind == Kind::kFree; });
}

std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  StrideRule rule;
  rule.order.resize(sizes.size());
  rule.steps.resize(sizes.size());
  std::iota(rule.order.begin(), rule.order.end(), std::size_t{0});
  std::ranges::stable_sort(rule.order, std::less(), [&](std::size_t i) { return std::pair(strides[i], sizes[i]); });
  std::ranges::reverse(rule.order);
  std::int64_t within = 1;
  for (const std::size_t dim : std::views::reverse(rule.order)) {
    if (strides[dim] == 0) {
      rule.steps[dim] = {Kind::kExpanded};
      continue;
    }
    if (strides[dim] < within) return std::nullopt;
    if (strides[dim] > within) rule.steps[dim] = {Kind::kGap, strides[dim] - within};
    within = strides[dim] * std::max<std::int64_t>(sizes[dim], 1);
  }
  return rule;
}

std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                                  std::span<const std::int64_t> sizes_before,
                                  std::span<const std::int64_t> strides_before) {
  std::optional<StrideRule> rule = rule_of(sizes, strides);
  if (!rule) return rule;
  std::int64_t within_before = 1;
  bool is_any_wider = false;
  for (const std::size_t dim : std::views::reverse(rule->order)) {
    StrideRule::Step& step = rule->steps[dim];
    if (step.kind == Kind::kExpanded) continue;
    if (step.kind == Kind::kGap && step.number != strides_before[dim] - within_before) {
      // The sizes within one that is fixed have bounds, which are simple where there are no gaps.
      const bool is_fixed = strides[dim] == strides_before[dim] && !is_any_wider;
      step = is_fixed ? StrideRule::Step{Kind::kFixed, strides[dim]} : StrideRule::Step{Kind::kFree};
    }
    is_any_wider = is_any_wider || step.is_wider();
    within_before = strides_before[dim] * std::max<std::int64_t>(sizes_before[dim], 1);
  }
  return rule;
}

namespace {

/// Calls `visit` with each dimension, the innermost first, and the number of elements within it, and gets its stride.
template <typename Visitor>
void for_each_stride(const StrideRule& rule, const Dims& sizes, const Visitor& visit) {
  Dim within = 1;
  for (const std::size_t dim : std::views::reverse(rule.order)) {
    const Dim stride = visit(dim, within);
    if (rule.steps[dim].kind == Kind::kExpanded) continue;
    within = sizes[dim] == Dim(0) ? stride : stride * sizes[dim];
  }
}

Dim stride_by(const StrideRule::Step& step, const Dim& within, const SymbolDim& symbol) {
  switch (step.kind) {
    case Kind::kWithin:
      return within;
    case Kind::kGap:
      return within + Dim(step.number);
    case Kind::kFixed:
      return step.number;
    case Kind::kFree:
      return symbol(static_cast<std::uint32_t>(step.number));
    case Kind::kExpanded:
      return 0;
  }
  return within;
}

}  // namespace

Dims strides_by(const StrideRule& rule, const Dims& sizes, const SymbolDim& symbol) {
  Dims strides(sizes.size());
  for_each_stride(rule, sizes, [&](std::size_t dim, const Dim& within) {
    return strides[dim] = stride_by(rule.steps[dim], within, symbol);
  });
  return strides;
}

std::vector<Condition> conditions_of(const StrideRule& rule, const Dims& sizes, const SymbolDim& symbol) {
  std::vector<Condition> conditions;
  for_each_stride(rule, sizes, [&](std::size_t dim, const Dim& within) {
    const Dim stride = stride_by(rule.steps[dim], within, symbol);
    if (rule.steps[dim].kind == Kind::kFree) {
      conditions.push_back({Condition::Kind::kAtMost, within + Dim(1), stride});
    }
    return stride;
  });
  return conditions;
}

bool follows(const StrideRule& rule, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::int64_t within = 1;
  for (const std::size_t dim : std::views::reverse(rule.order)) {
    const StrideRule::Step& step = rule.steps[dim];
    const std::int64_t stride = strides[dim];
    switch (step.kind) {
      case Kind::kWithin:
        if (stride != within) return false;
        break;
      case Kind::kGap:
        if (stride != within + step.number) return false;
        break;
      case Kind::kFixed:
        if (stride != step.number || stride < within) return false;
        break;
      case Kind::kFree:
        if (stride <= within) return false;
        break;
      case Kind::kExpanded:
        if (stride != 0) return false;
        continue;
    }
    within = stride * std::max<std::int64_t>(sizes[dim], 1);
  }
  return true;
}

}  // namespace thunder::ir
