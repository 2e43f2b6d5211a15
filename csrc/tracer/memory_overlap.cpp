#include "tracer/memory_overlap.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tracer/evaluate.h"

namespace thunder::tracer {
namespace {

/// A number of steps, from `first` to `last`, of `stride` bytes each.
struct Steps {
  std::int64_t stride;
  std::int64_t first;
  std::int64_t last;
};

/// Adds the steps along each dimension, and over the bytes of an element; in the opposite direction if `is_opposite`.
void add_steps(const at::Tensor& tensor, bool is_opposite, std::vector<Steps>& all) {
  const auto add = [&](std::int64_t stride, std::int64_t size) {
    if (stride == 0) return;
    const std::int64_t most = size - 1;
    auto same = std::ranges::find(all, stride, &Steps::stride);
    if (same == all.end()) same = all.insert(same, {stride, 0, 0});
    (is_opposite ? same->first : same->last) += is_opposite ? -most : most;
  };
  const auto bytes = static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t i = 0; i < tensor.dim(); ++i) add(tensor.stride(i) * bytes, tensor.size(i));
  add(1, bytes);
}

/// Whether steps lead `distance` bytes far. `budget` searches at most; where that is not enough, they may.
bool can_reach(std::span<const Steps> steps, std::int64_t distance, int& budget) {
  if (steps.empty()) return distance == 0;
  if (--budget < 0) return true;
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const Steps& each : steps) {
    least += each.stride * each.first;
    most += each.stride * each.last;
  }
  if (distance < least || distance > most) return false;
  const Steps& widest = steps.front();
  const std::int64_t least_of_rest = least - widest.stride * widest.first;
  const std::int64_t most_of_rest = most - widest.stride * widest.last;
  const std::int64_t from = std::max(widest.first, (distance - most_of_rest) / widest.stride - 1);
  const std::int64_t to = std::min(widest.last, (distance - least_of_rest) / widest.stride + 1);
  for (std::int64_t count = from; count <= to; ++count) {
    if (can_reach(steps.subspan(1), distance - count * widest.stride, budget)) return true;
  }
  return false;
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() <= 1 || tensor.is_non_overlapping_and_dense()) return false;
  std::vector<Steps> dims;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) dims.push_back({tensor.stride(i), 0, tensor.size(i) - 1});
  }
  std::ranges::sort(dims, {}, &Steps::stride);
  std::int64_t reach = 0;
  for (const Steps& dim : dims) {
    if (dim.stride <= reach) return true;
    reach += dim.stride * dim.last;
  }
  return false;
}

bool share_elements(const at::Tensor& left, const at::Tensor& right) {
  if (!share_memory(left, right) || left.numel() == 0 || right.numel() == 0) return false;
  std::vector<Steps> steps;
  add_steps(left, /*is_opposite=*/false, steps);
  add_steps(right, /*is_opposite=*/true, steps);
  std::ranges::sort(steps, std::ranges::greater(), &Steps::stride);
  const auto begin_of = [](const at::Tensor& tensor) {
    return tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
  };
  constexpr int kBudget = 1000;
  int budget = kBudget;
  return can_reach(steps, begin_of(right) - begin_of(left), budget);
}

bool show_same_elements(const at::Tensor& left, const at::Tensor& right) {
  return share_memory(left, right) && is_laid_out_alike(left, right) && left.scalar_type() == right.scalar_type();
}

}  // namespace thunder::tracer
