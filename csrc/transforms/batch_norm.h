#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace thunder::transforms {

/// A call of `aten::batch_norm`, as arithmetic of operations that are fused.
class BatchNorm {
 public:
  enum Argument : std::size_t {
    kInput,
    kWeight,
    kBias,
    kRunningMean,
    kRunningVariance,
    kTraining,
    kMomentum,
    kEpsilon
  };

  explicit BatchNorm(std::vector<c10::IValue>& arguments);

  /// The channels of a position are contiguous: in a float32 input, or on a GPU a 16-bit one with float32 parameters.
  [[nodiscard]] bool has_columns() const;
  /// The input is a tensor on the CPU in which a channel's elements of an image lie side by side, not just a few.
  [[nodiscard]] bool has_rows() const;
  [[nodiscard]] bool is_training() const { return arguments_[kTraining].toBool(); }
  [[nodiscard]] bool has_running_statistics() const { return !arguments_[kRunningMean].isNone(); }
  [[nodiscard]] const at::Tensor& input() const { return input_; }
  /// The dimensions but that of the channels.
  [[nodiscard]] const std::vector<std::int64_t>& reduced() const { return reduced_; }
  /// Elements of a channel.
  [[nodiscard]] std::int64_t count() const;

  /// Statistics of each channel, `[1, C, 1, 1]` for `[N, C, H, W]`; the variance is that of a population.
  struct Moments {
    at::Tensor mean;
    at::Tensor variance;
  };
  [[nodiscard]] Moments moments() const;
  /// 16-bit floats as float32, in which all arithmetic is done; and a result in the input's dtype.
  [[nodiscard]] static at::Tensor widened(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor rounded(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor reciprocal_deviation(const at::Tensor& variance) const;
  /// `(input - mean) * reciprocal_deviation * weight + bias`.
  [[nodiscard]] at::Tensor normalized(const at::Tensor& mean, const at::Tensor& reciprocal_deviation) const;
  /// `[C]` as `[1, C, 1, 1]`, and back.
  [[nodiscard]] at::Tensor along_channels(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor of_channels(const at::Tensor& tensor) const;

  /// The result with the running statistics.
  [[nodiscard]] at::Tensor evaluated() const;
  /// Moves the running statistics, and leaves them out of the call.
  void update_running_statistics();

 private:
  [[nodiscard]] at::Tensor tensor(Argument argument) const;

  std::vector<c10::IValue>& arguments_;
  at::Tensor input_;
  std::vector<std::int64_t> reduced_;
};

}  // namespace thunder::transforms
