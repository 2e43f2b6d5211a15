#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ir/stride_rule.h"

namespace thunder::dispatch {

/// The metadata of an input tensor that a trace depends on.
class TensorGuard {
 public:
  /// `checks_offset`: also where in its memory the tensor begins; `checks_view`: also whether it is a view.
  explicit TensorGuard(const at::Tensor& tensor, bool checks_offset = false, bool checks_view = false);
  [[nodiscard]] bool matches(const at::Tensor& tensor) const;
  /// Requires that the part of a distributed tensor that this process has is like this one, too.
  void add_local_part(const at::Tensor& part) { local_part_.emplace_back(part); }
  /// Null for other tensors.
  [[nodiscard]] const TensorGuard* local_part() const { return local_part_.empty() ? nullptr : &local_part_.front(); }
  /// Lets these sizes be any from two on, and strides be those of the rule; `dims` has one element for each size.
  void free_sizes(std::vector<bool> dims, ir::StrideRule rule);
  /// Whether an int that the guards find is one that the tensor holds, and not the tensor's size (number_input.h).
  [[nodiscard]] bool holds_int() const { return dtype_ == caffe2::TypeMeta::Make<std::int64_t>() && sizes_.empty(); }
  friend bool operator==(const TensorGuard&, const TensorGuard&) = default;

 private:
  [[nodiscard]] bool matches_sizes(c10::IntArrayRef sizes, c10::IntArrayRef strides) const;

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
  std::vector<bool> is_free_;            ///< sizes that may be others; empty: none
  std::vector<TensorGuard> local_part_;  ///< one at most
  ir::StrideRule rule_;                  ///< where some are free
};

/// For people: `float32[2, 3]`, followed by what is not the common case (strides, device, requires_grad, …).
[[nodiscard]] std::string describe_tensor(const at::Tensor& tensor);

}  // namespace thunder::dispatch
