#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "ir/trace.h"

namespace thunder::tracer {

struct CustomGradient;

/// Is told how a backward is recorded that the program brought along, to do the same at other sizes. Its operations are
/// followed as those of the program are; values have the same numbers in all recorders.
class GradientFollower {
 public:
  GradientFollower() = default;
  virtual ~GradientFollower() = default;
  GradientFollower(const GradientFollower&) = delete;
  GradientFollower& operator=(const GradientFollower&) = delete;

  /// While the result lives, sizes are read by thunder.
  [[nodiscard]] virtual std::shared_ptr<void> inside() = 0;
  /// `cotangent` is a new value of the program: the gradient of `result`.
  virtual void add_cotangent(const at::Tensor& result, const at::Tensor& cotangent) = 0;
  /// The backward's operations are recorded from here on.
  virtual void begin() = 0;
  /// The backward gave `gradients`, and `results`, which were `values`, have it from here on.
  virtual void finish(std::span<const at::Tensor> results, std::span<const ir::ValueId> values,
                      std::span<const at::Tensor> gradients, const CustomGradient& gradient) = 0;
};

}  // namespace thunder::tracer
