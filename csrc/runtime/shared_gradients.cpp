#include "runtime/shared_gradients.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstddef>

namespace thunder::runtime {
namespace {

bool has_storage(const at::Tensor& tensor) { return tensor.defined() && tensor.has_storage(); }

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

bool may_overlap(const at::Tensor& gradient, const at::Tensor& other) {
  return has_storage(other) && !gradient.is_same(other) && storage_of(gradient) == storage_of(other) &&
         at::get_overlap_status(gradient, other) != at::MemOverlapStatus::No;
}

}  // namespace

HeldCotangents::HeldCotangents(std::span<const at::Tensor> cotangents) {
  for (const at::Tensor& cotangent : cotangents) {
    if (!has_storage(cotangent)) continue;
    if (cotangent.use_count() == 1 && cotangent.storage().use_count() == 1) continue;
    held_.push_back({cotangent.unsafeGetTensorImpl(), storage_of(cotangent)});
  }
}

bool HeldCotangents::hold(const at::Tensor& gradient) const {
  return std::ranges::any_of(held_, [&](const Held& each) {
    return each.storage == storage_of(gradient) && each.tensor != gradient.unsafeGetTensorImpl();
  });
}

void HeldCotangents::separate(std::span<at::Tensor> gradients) const {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& gradient = gradients[i];
    // PyTorch copies what is not dense.
    if (!has_storage(gradient) || gradient.storage().use_count() == 1 || !gradient.is_non_overlapping_and_dense()) {
      continue;
    }
    const auto overlaps = [&](const at::Tensor& other) { return may_overlap(gradient, other); };
    if (!hold(gradient) && std::ranges::none_of(gradients, overlaps)) continue;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    gradient = gradient.clone();
  }
}

}  // namespace thunder::runtime
