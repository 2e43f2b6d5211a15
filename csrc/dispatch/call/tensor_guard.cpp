#include "dispatch/call/tensor_guard.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cctype>

namespace thunder::dispatch {
namespace {

std::string name_of_dtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Char:
      return "int8";
    case c10::ScalarType::Short:
      return "int16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::ComplexFloat:
      return "complex64";
    case c10::ScalarType::ComplexDouble:
      return "complex128";
    default:
      break;
  }
  std::string name = c10::toString(tensor.scalar_type());
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

std::string list_of(c10::IntArrayRef numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text + "]";
}

/// Those that a new tensor of its sizes has: more than is_contiguous(), which passes over dimensions of size 1.
bool has_usual_strides(const at::Tensor& tensor) {
  std::int64_t expected = 1;
  for (std::int64_t i = tensor.dim() - 1; i >= 0; --i) {
    if (tensor.stride(i) != expected) return false;
    expected *= std::max<std::int64_t>(tensor.size(i), 1);
  }
  return true;
}

bool are_equal(c10::IntArrayRef found, const std::vector<std::int64_t>& expected) {
  const std::size_t count = found.size();
  if (count != expected.size()) return false;
  const std::int64_t* left = found.data();
  const std::int64_t* right = expected.data();
  for (std::size_t i = 0; i < count; ++i) {
    if (left[i] != right[i]) return false;
  }
  return true;
}

bool requires_grad(const torch::autograd::AutogradMeta* autograd) {
  if (autograd == nullptr) return false;
  return autograd->requires_grad_ || (autograd->is_view_ ? autograd->requires_grad() : autograd->grad_fn_ != nullptr);
}

}  // namespace

TensorGuard::TensorGuard(const at::Tensor& tensor, bool checks_offset, bool checks_view)
    : keys_(tensor.key_set()),
      dtype_(tensor.dtype()),
      device_(tensor.device()),
      requires_grad_(tensor.requires_grad()),
      is_leaf_(tensor.is_leaf()),
      checks_offset_(checks_offset),
      offset_(checks_offset ? tensor.storage_offset() : 0),
      checks_view_(checks_view),
      is_view_(checks_view && tensor.is_view()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.layout() == c10::kStrided ? tensor.strides().vec() : std::vector<std::int64_t>{}) {}

void TensorGuard::free_sizes(std::vector<bool> dims, ir::StrideRule rule) {
  is_free_ = std::move(dims);
  rule_ = std::move(rule);
  // Free sizes do not tell guards apart.
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (is_free_[i]) sizes_[i] = 0;
  }
  strides_.clear();
}

bool TensorGuard::matches_sizes(c10::IntArrayRef sizes, c10::IntArrayRef strides) const {
  if (sizes.size() != sizes_.size()) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (is_free_[i] ? sizes[i] < 2 : sizes[i] != sizes_[i]) return false;
  }
  return ir::follows(rule_, sizes, strides);
}

// Runs for every parameter of a model at every call: fields rather than virtual functions, loops rather than memcmp.
bool TensorGuard::matches(const at::Tensor& tensor) const {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set() != keys_ || impl->dtype() != dtype_ || impl->device() != device_) return false;
  const auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  if (requires_grad(autograd) != requires_grad_) return false;
  if (requires_grad_ && (autograd->grad_fn_ == nullptr) != is_leaf_) return false;
  if (is_free_.empty() ? !are_equal(impl->sizes(), sizes_) : !matches_sizes(impl->sizes(), impl->strides()))
    return false;
  if (checks_view_ && tensor.is_view() != is_view_) return false;
  if (checks_offset_ && impl->storage_offset() != offset_) return false;
  return strides_.empty() || are_equal(impl->strides(), strides_);
}

std::string describe_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::string text = name_of_dtype(tensor) + list_of(tensor.sizes());
  if (tensor.layout() != c10::kStrided) return text + " sparse";
  if (!has_usual_strides(tensor)) text += " strides " + list_of(tensor.strides());
  if (!tensor.is_cpu()) text += " on " + tensor.device().str();
  if (tensor.requires_grad()) text += tensor.is_leaf() ? " requires_grad" : " requires_grad, not a leaf";
  if (tensor.storage_offset() != 0) text += " at offset " + std::to_string(tensor.storage_offset());
  if (tensor.is_inference()) text += " made in inference mode";
  if (tensor.is_conj()) text += " conjugated";
  if (tensor.is_neg()) text += " negated";
  return text;
}

}  // namespace thunder::dispatch
