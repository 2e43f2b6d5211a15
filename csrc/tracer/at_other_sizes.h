#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ir/trace.h"
#include "ir/type.h"

namespace thunder::tracer {

class Recorder;
class Recording;
class TraceNode;
struct CustomGradient;
struct PythonFunction;

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
  /// `cotangent` is a new value of the program: the gradient of `result`.
  virtual void add_cotangent(const at::Tensor& result, const at::Tensor& cotangent) = 0;
  /// Adds the gradient to another recorder, whose last operations it has; gives the values that have it. Empty: as it
  /// is.
  using AddThere = std::function<std::vector<ir::ValueId>(Recorder& there)>;
  /// The backward gave `gradients`, and `results`, which were `values`, have it from here on.
  virtual void finish(std::span<const at::Tensor> results, std::span<const ir::ValueId> values,
                      std::span<const at::Tensor> gradients, const CustomGradient& gradient, const AddThere& add) = 0;
};

/// Null: there are no other sizes, or none from here on. Defined in followed_data.cpp, as are the next ones.
[[nodiscard]] std::unique_ptr<GradientFollower> follow_gradient(const Recording& program);

/// For `autograd::BackwardWalk::has_sizes`: compares the sizes that are traced, and pins none. Empty: there are no
/// others.
[[nodiscard]] std::function<bool(const at::Tensor& tensor, c10::SymIntArrayRef sizes)> sizes_at_hand(
    const Recording& program);

/// For `autograd::BackwardWalk::while_accumulating`: who lays a gradient out as its leaf is passes over dimensions of
/// size one, and may read their strides, where any will do. Empty: there are no other sizes.
[[nodiscard]] std::function<std::shared_ptr<void>()> all_strides_at_hand(const Recording& program);

/// `RecordingHost::derive` for a node of the program.
[[nodiscard]] std::vector<at::Tensor> derive_at_all_sizes(TraceNode& node, std::vector<at::Tensor> cotangents);

/// `AdoptedGradients::add_python_function`, here and at other sizes.
[[nodiscard]] at::Tensor add_python_function_at_all_sizes(Recorder& program, std::span<const at::Tensor> results,
                                                          std::span<const at::Tensor> inputs,
                                                          std::span<const at::Tensor> saved,
                                                          const std::shared_ptr<const PythonFunction>& function);

/// `data` is the `.data` of a tensor.
void follow_data_attribute(const at::Tensor& tensor, const at::Tensor& data);

}  // namespace thunder::tracer
