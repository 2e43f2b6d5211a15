#include "dispatch/tensor_guard.h"

namespace thunder::dispatch {

TensorGuard::TensorGuard(const at::Tensor& tensor)
    : keys_(tensor.key_set()),
      dtype_(tensor.dtype()),
      device_(tensor.device()),
      requires_grad_(tensor.requires_grad()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.layout() == c10::kStrided ? tensor.strides().vec() : std::vector<std::int64_t>{}) {}

bool TensorGuard::matches(const at::Tensor& tensor) const {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set() != keys_ || impl->dtype() != dtype_ || impl->requires_grad() != requires_grad_) return false;
  if (impl->sizes() != c10::IntArrayRef(sizes_) || impl->device() != device_) return false;
  return strides_.empty() || impl->strides() == c10::IntArrayRef(strides_);
}

}  // namespace thunder::dispatch
