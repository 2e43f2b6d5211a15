#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tracer/views.h"

namespace thunder::tracer {

class Recording;

/// Records operations that the tracer itself adds to a program, on trace tensors. They are called as PyTorch's
/// functions are, but nothing looks at them again: no autocast, no layers of functorch.
class CallBuilder {
 public:
  explicit CallBuilder(Recording& recording) : recording_(recording) {}
  [[nodiscard]] at::Tensor call(OperatorCall call) const;

  [[nodiscard]] at::Tensor clone(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor detach(const at::Tensor& x) const;
  /// To the dtype and device of `like`.
  [[nodiscard]] at::Tensor to(const at::Tensor& x, const at::Tensor& like, at::MemoryFormat format) const;
  /// With the sizes, strides, dtype and device of `like`.
  [[nodiscard]] at::Tensor empty_strided_like(const at::Tensor& like) const;
  [[nodiscard]] at::Tensor zeros_like(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor ones_like(const at::Tensor& x) const;
  /// Integers from 0 on.
  [[nodiscard]] at::Tensor arange(std::int64_t count, at::Device device) const;

  [[nodiscard]] at::Tensor expand(const at::Tensor& x, at::IntArrayRef sizes) const;
  [[nodiscard]] at::Tensor permute(const at::Tensor& x, at::IntArrayRef dims) const;
  [[nodiscard]] at::Tensor reshape(const at::Tensor& x, at::IntArrayRef sizes) const;
  [[nodiscard]] at::Tensor transpose(const at::Tensor& x, std::int64_t dim, std::int64_t other) const;
  [[nodiscard]] at::Tensor view_as_real(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor view_as_complex(const at::Tensor& x) const;
  /// The elements of `x`, in memory of such strides.
  [[nodiscard]] at::Tensor restride(const at::Tensor& x, at::IntArrayRef strides) const;

  [[nodiscard]] at::Tensor add(const at::Tensor& a, const at::Tensor& b) const;
  [[nodiscard]] at::Tensor sub(const at::Tensor& a, const at::Tensor& b) const;
  [[nodiscard]] at::Tensor eq(const at::Tensor& a, const at::Tensor& b) const;
  [[nodiscard]] at::Tensor is_not_zero(const at::Tensor& x) const;
  /// With the further arguments of `allclose`.
  [[nodiscard]] at::Tensor isclose(std::vector<c10::IValue> arguments) const;
  [[nodiscard]] at::Tensor where(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) const;
  [[nodiscard]] at::Tensor where(const at::Tensor& condition, const at::Tensor& a, const at::Scalar& b) const;
  [[nodiscard]] at::Tensor all(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor sum(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor index_copy(const at::Tensor& x, std::int64_t dim, const at::Tensor& index,
                                      const at::Tensor& source) const;

 private:
  Recording& recording_;
};

}  // namespace thunder::tracer
