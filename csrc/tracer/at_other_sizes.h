#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <memory>
#include <span>

#include "ir/trace.h"
#include "ir/type.h"

namespace thunder::tracer {

class Recording;
struct CustomGradient;

/// Is told how a backward is recorded that the program brought along, to do the same at other sizes. Its operations are
/// followed as those of the program are; values have the same numbers in all recorders.
class GradientFollower {
 public:
  GradientFollower() = default;
  virtual ~GradientFollower() = default;
  GradientFollower(const GradientFollower&) = delete;
  GradientFollower& operator=(const GradientFollower&) = delete;

  /// The type of a tensor at the sizes that are traced.
  [[nodiscard]] virtual ir::TensorType type_of(const at::Tensor& tensor) = 0;
  /// Whether a tensor has sizes at those that are traced; asking pins nothing.
  [[nodiscard]] virtual bool has_sizes(const at::Tensor& tensor, c10::SymIntArrayRef sizes) = 0;
  /// `cotangent` is a new value of the program: the gradient of `result`.
  virtual void add_cotangent(const at::Tensor& result, const at::Tensor& cotangent) = 0;
  /// The backward gave `gradients`, and `results`, which were `values`, have it from here on.
  virtual void finish(std::span<const at::Tensor> results, std::span<const ir::ValueId> values,
                      std::span<const at::Tensor> gradients, const CustomGradient& gradient) = 0;
};

/// Null: there are no other sizes, or none from here on. Defined in followed_data.cpp, as is the next one.
[[nodiscard]] std::unique_ptr<GradientFollower> follow_gradient(const Recording& program);

/// `data` is the `.data` of a tensor.
void follow_data_attribute(const at::Tensor& tensor, const at::Tensor& data);

}  // namespace thunder::tracer
