#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace thunder::transforms {

/// A call of `aten::group_norm` of images, as arithmetic of operations that are fused.
class GroupNorm {
 public:
  enum Argument : std::size_t { kInput, kGroups, kWeight, kBias, kEpsilon };

  explicit GroupNorm(const std::vector<c10::IValue>& arguments);

  /// The input is a tensor on the CPU whose channels lie side by side, more than one in a group.
  [[nodiscard]] bool has_columns() const;
  /// In the dtype that is computed in.
  [[nodiscard]] const at::Tensor& input() const { return input_; }

  /// Statistics of each group of an image: the mean for each channel, `[N, C, 1, 1]`, the other one `[N, groups, 1]`.
  struct Moments {
    at::Tensor mean;
    at::Tensor reciprocal_deviation;
  };
  [[nodiscard]] Moments moments() const;
  /// `(input - mean) * reciprocal_deviation * weight + bias`.
  [[nodiscard]] at::Tensor normalized(const Moments& moments) const;

  struct Gradients {
    at::Tensor input;
    at::Tensor weight;
    at::Tensor bias;
  };
  /// Those of the weight and the bias are there whether or not the call has them.
  [[nodiscard]] Gradients gradients(const at::Tensor& cotangent, const Moments& moments) const;

 private:
  [[nodiscard]] at::Tensor tensor(Argument argument) const;
  /// `[N, C]` as `[N, groups, channels of a group]`; what broadcasts to that as `[N, C, 1, 1]`.
  [[nodiscard]] at::Tensor by_groups(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor by_channels(const at::Tensor& tensor) const;
  /// The weight, `[1, groups, channels of a group]`; undefined where there is none.
  [[nodiscard]] at::Tensor weight() const;
  [[nodiscard]] at::Tensor scaled(const at::Tensor& tensor) const;

  const std::vector<c10::IValue>& arguments_;
  at::Tensor given_;
  at::Tensor input_;
  std::int64_t groups_;
  std::vector<std::int64_t> places_;  ///< the dimensions of an image
};

}  // namespace thunder::transforms
