#include "runtime/legacy_batches.h"

#include <ATen/LegacyBatchedTensorImpl.h>

#include <algorithm>

// PyTorch's header for these batches and that for functorch's cannot be read by one source.

namespace thunder::runtime {

bool is_legacy_example(const at::Tensor& tensor) { return at::isBatchedTensor(tensor); }

Physical unwrap_legacy(const at::Tensor& tensor) {
  const auto* batched = at::unsafeGetBatchedImpl(tensor);
  Physical result;
  std::vector<std::int64_t> order;
  for (const at::BatchDim& dim : batched->bdims()) {
    result.levels.push_back(dim.level());
    order.push_back(dim.dim());
  }
  for (std::int64_t i = 0; i < batched->value().dim(); ++i) {
    if (std::ranges::find(order, i) == order.end()) order.push_back(i);
  }
  result.tensor = batched->value().permute(order);
  return result;
}

at::Tensor wrap_legacy(const at::Tensor& tensor, std::span<const std::int64_t> levels) {
  at::BatchDims dims;
  for (const std::int64_t level : levels) dims.emplace_back(level, static_cast<std::int64_t>(dims.size()));
  return at::makeBatched(tensor, dims);
}

}  // namespace thunder::runtime
