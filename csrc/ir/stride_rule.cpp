#include "ir/stride_rule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace thunder::ir {

std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  StrideRule rule;
  rule.order.resize(sizes.size());
  std::iota(rule.order.begin(), rule.order.end(), std::size_t{0});
  std::ranges::stable_sort(rule.order, std::less(), [&](std::size_t i) { return std::pair(strides[i], sizes[i]); });
  std::ranges::reverse(rule.order);
  std::int64_t within = 1;
  for (auto dim = rule.order.rbegin(); dim != rule.order.rend(); ++dim) {
    if (strides[*dim] != within) {
      if (strides[*dim] < within || rule.wider) return std::nullopt;
      rule.wider = *dim;
      rule.gap = strides[*dim] - within;
    }
    within = strides[*dim] * std::max<std::int64_t>(sizes[*dim], 1);
  }
  return rule;
}

std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                                  std::span<const std::int64_t> sizes_before,
                                  std::span<const std::int64_t> strides_before) {
  std::optional<StrideRule> rule = rule_of(sizes, strides);
  const std::optional<StrideRule> before = rule_of(sizes_before, strides_before);
  if (!rule || !rule->wider || rule == before) return rule;
  rule->gap = 0;
  rule->stride = strides[*rule->wider];
  return follows(*rule, sizes_before, strides_before) ? rule : std::nullopt;
}

Dims strides_by(const StrideRule& rule, const Dims& sizes) {
  Dims strides(sizes.size());
  Dim within = 1;
  for (auto dim = rule.order.rbegin(); dim != rule.order.rend(); ++dim) {
    const bool is_wider = rule.wider == *dim;
    strides[*dim] = is_wider && rule.stride != 0 ? Dim(rule.stride) : is_wider ? within + Dim(rule.gap) : within;
    within = sizes[*dim] == Dim(0) ? strides[*dim] : strides[*dim] * sizes[*dim];
  }
  return strides;
}

bool follows(const StrideRule& rule, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::int64_t within = 1;
  for (auto dim = rule.order.rbegin(); dim != rule.order.rend(); ++dim) {
    const bool is_wider = rule.wider == *dim;
    const std::int64_t expected = !is_wider ? within : rule.stride != 0 ? rule.stride : within + rule.gap;
    if (strides[*dim] != expected || expected < within) return false;
    within = expected * std::max<std::int64_t>(sizes[*dim], 1);
  }
  return true;
}

}  // namespace thunder::ir
