#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace thunder::dispatch {

/// The metadata of an input tensor that a trace depends on.
class TensorGuard {
 public:
  /// `checks_offset`: also where in its memory the tensor begins; `checks_view`: also whether it is a view.
  explicit TensorGuard(const at::Tensor& tensor, bool checks_offset = false, bool checks_view = false);
  [[nodiscard]] bool matches(const at::Tensor& tensor) const;
  friend bool operator==(const TensorGuard&, const TensorGuard&) = default;

 private:
  c10::DispatchKeySet keys_;  ///< says layout, conjugation, negation and inference too
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  bool requires_grad_;
  bool is_leaf_;  ///< if it requires grad: whether gradients end there, and writes raise
  bool checks_offset_;
  std::int64_t offset_;
  bool checks_view_;
  bool is_view_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

/// For people: `float32[2, 3]`, followed by what is not the common case (strides, device, requires_grad, …).
[[nodiscard]] std::string describe_tensor(const at::Tensor& tensor);

}  // namespace thunder::dispatch
