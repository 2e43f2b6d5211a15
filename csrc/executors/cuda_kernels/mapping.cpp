#include "executors/cuda_kernels/mapping.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace thunder::executors::cuda {

using fusion::Extent;
using fusion::SizedKernel;

std::int64_t row_count(const SizedKernel& kernel) {
  return std::accumulate(kernel.domain.outer.begin(), kernel.domain.outer.end(), std::int64_t{1}, std::multiplies<>());
}

bool reduces_rows(const SizedKernel& kernel) {
  using Kind = fusion::KernelNode::Kind;
  return std::ranges::any_of(kernel.nodes, [](const fusion::KernelNode& node) {
    return node.kind == Kind::kReduce || node.kind == Kind::kMean || node.kind == Kind::kVariance;
  });
}

bool has_rows_in_order(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel) {
  if (access.extent != Extent::kElements || !access.parts.empty() || access.run != 0) return false;
  if (access.is_dense) return true;
  std::int64_t stride = kernel.domain.columns;
  for (std::size_t i = access.outer_strides.size(); i-- > 0; stride *= kernel.domain.outer[i]) {
    if (access.outer_strides[i] != stride) return false;
  }
  return access.inner_stride == 1;
}

bool is_vectorized(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel, int vector,
                   const LaunchFacts& facts) {
  if (vector == 1 || !access.parts.empty()) return false;
  const std::int64_t bytes = std::min<std::int64_t>(kWidestLoad, vector * ir::size_of(access.dtype));
  if (facts.alignment % bytes != 0) return false;
  if (access.is_dense) {
    return access.extent == Extent::kElements && !kernel.domain.interleaved && kernel.domain.columns % vector == 0;
  }
  const auto divides = [&](std::int64_t number) { return number % vector == 0; };
  return access.inner_stride == 1 && divides(access.run) && divides(access.run_stride) &&
         divides(access.table_stride) && std::ranges::all_of(access.outer_strides, divides);
}

bool is_vectorized(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel, const Mapping& mapping,
                   const LaunchFacts& facts) {
  return mapping.is_shifted ? has_rows_in_order(access, kernel) : is_vectorized(access, kernel, mapping.vector, facts);
}

bool has_vectorized_parts(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel, int vector,
                          const LaunchFacts& facts) {
  const std::int64_t bytes = std::min<std::int64_t>(kWidestLoad, vector * ir::size_of(access.dtype));
  const auto divides = [&](std::int64_t number) { return number % vector == 0; };
  if (vector == 1 || access.parts.empty() || facts.alignment % bytes != 0) return false;
  if (kernel.domain.interleaved || !divides(access.run) || !divides(kernel.domain.columns)) return false;
  const std::int64_t width = access.run != 0 ? access.run : kernel.domain.columns;
  return std::ranges::all_of(access.parts, [&](const fusion::BasicPart<std::int64_t>& part) {
    const bool begins_and_ends =
        divides(part.columns.begin) && (divides(part.columns.end) || part.columns.end >= width);
    return part.columns.stride == 1 && begins_and_ends && divides(part.runs.stride) &&
           std::ranges::all_of(part.outer, [&](const auto& interval) { return divides(interval.stride); });
  });
}

}  // namespace thunder::executors::cuda
