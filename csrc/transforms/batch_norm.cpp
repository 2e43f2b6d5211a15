#include "transforms/batch_norm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <optional>

#include "bridge/least_run.h"
#include "transforms/many_sizes.h"

namespace thunder::transforms {

BatchNorm::BatchNorm(std::vector<c10::IValue>& arguments)
    : arguments_(arguments), input_(arguments[kInput].toTensor()) {
  for (std::int64_t dim = 0; dim < input_.dim(); ++dim) {
    if (dim != 1) reduced_.push_back(dim);
  }
}

at::Tensor BatchNorm::tensor(Argument argument) const {
  return arguments_[argument].isNone() ? at::Tensor() : arguments_[argument].toTensor();
}

bool BatchNorm::has_columns() const {
  const auto is_plain = [&](Argument argument) {
    const at::Tensor given = tensor(argument);
    return !given.defined() || given.scalar_type() == at::kFloat;
  };
  const bool is_mixed = input_.is_cuda() && at::isReducedFloatingType(input_.scalar_type());
  const bool are_plain = (is_mixed || is_plain(kInput)) &&
                         std::ranges::all_of(std::array{kWeight, kBias, kRunningMean, kRunningVariance}, is_plain);
  const bool has_columns = (input_.dim() == 2 && input_.is_contiguous()) ||
                           (input_.dim() == 4 && input_.is_contiguous(at::MemoryFormat::ChannelsLast));
  const bool has_device = input_.is_cpu() || input_.is_cuda();
  return are_plain && has_columns && has_device && input_.size(1) > 1 && count() > 1;
}

bool BatchNorm::has_rows() const {
  const auto is_plain = [&](Argument argument) {
    const at::Tensor given = tensor(argument);
    return !given.defined() || given.scalar_type() == at::kFloat || given.scalar_type() == input_.scalar_type();
  };
  const bool are_plain = input_.is_floating_point() &&
                         std::ranges::all_of(std::array{kWeight, kBias, kRunningMean, kRunningVariance}, is_plain);
  if (!are_plain || !input_.is_cpu() || input_.dim() <= 2 || !input_.is_contiguous() || input_.numel() == 0) {
    return false;
  }
  return ManySizes::are_on() || input_.numel() / (input_.size(0) * input_.size(1)) >= bridge::kLeastRun;
}

std::int64_t BatchNorm::count() const { return input_.size(1) == 0 ? 0 : input_.numel() / input_.size(1); }

// `_to_copy`, as autograd records casts: equal ones become one.
at::Tensor BatchNorm::widened(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? at::_to_copy(tensor, at::kFloat) : tensor;
}

at::Tensor BatchNorm::rounded(const at::Tensor& tensor) const {
  return tensor.scalar_type() == input_.scalar_type() ? tensor : at::_to_copy(tensor, input_.scalar_type());
}

BatchNorm::Moments BatchNorm::moments() const {
  const auto [variance, mean] =
      at::var_mean(widened(input_), reduced_, std::make_optional<at::Scalar>(0), /*keepdim=*/true);
  return {mean, variance};
}

at::Tensor BatchNorm::reciprocal_deviation(const at::Tensor& variance) const {
  return at::rsqrt(at::add(variance, arguments_[kEpsilon].toDouble()));
}

at::Tensor BatchNorm::along_channels(const at::Tensor& tensor) const {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input_.dim()), 1);
  sizes[1] = -1;
  return at::reshape(tensor, sizes);
}

at::Tensor BatchNorm::of_channels(const at::Tensor& tensor) const { return at::reshape(tensor, {-1}); }

at::Tensor BatchNorm::normalized(const at::Tensor& mean, const at::Tensor& reciprocal_deviation) const {
  const at::Tensor weight = tensor(kWeight);
  const at::Tensor bias = tensor(kBias);
  const at::Tensor scale =
      weight.defined() ? at::mul(reciprocal_deviation, along_channels(weight)) : reciprocal_deviation;
  const at::Tensor scaled = at::mul(at::sub(widened(input_), mean), scale);
  return rounded(bias.defined() ? at::add(scaled, along_channels(bias)) : scaled);
}

at::Tensor BatchNorm::evaluated() const {
  return normalized(along_channels(tensor(kRunningMean)),
                    reciprocal_deviation(along_channels(tensor(kRunningVariance))));
}

void BatchNorm::update_running_statistics() {
  if (!has_running_statistics()) return;
  const c10::AutoGradMode no_gradients(false);
  const double momentum = arguments_[kMomentum].toDouble();
  const Moments now = moments();
  const auto move = [&](Argument argument, const at::Tensor& statistic, double factor) {
    const at::Tensor running = tensor(argument);
    running.copy_(at::add(at::mul(running, 1 - momentum), of_channels(statistic), momentum * factor));
    arguments_[argument] = c10::IValue();
  };
  move(kRunningMean, now.mean, 1);
  move(kRunningVariance, now.variance, static_cast<double>(count()) / static_cast<double>(count() - 1));
}

}  // namespace thunder::transforms
