#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace thunder::dispatch {

/// The metadata of an input tensor that a trace depends on.
class TensorGuard {
 public:
  explicit TensorGuard(const at::Tensor& tensor);
  [[nodiscard]] bool matches(const at::Tensor& tensor) const;

 private:
  c10::DispatchKeySet keys_;  ///< says layout, conjugation, negation and inference too
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  bool requires_grad_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

}  // namespace thunder::dispatch
