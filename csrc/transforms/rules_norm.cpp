// Normalizations.
#include <ATen/ATen.h>

#include <array>
#include <limits>
#include <optional>

#include "transforms/batch_norm.h"
#include "transforms/group_norm.h"
#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

// --- RMS norm
//
// Where PyTorch has no kernel it differentiates five small operations, and saves the normalized input besides the
// input itself.

enum RmsNormArgument : std::size_t { kNormInput, kNormShape, kNormWeight, kNormEpsilon };

bool rms_norm_applies(const RuleCall& call) {
  const at::Tensor x = call.tensor(kNormInput);
  const at::Tensor weight = call.tensor(kNormWeight);
  const bool is_exact = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  // PyTorch lays out the result of any other input as a contiguous one.
  return !x.is_cuda() && x.is_contiguous() && is_exact &&
         (!weight.defined() || weight.scalar_type() == x.scalar_type());
}

double epsilon_of(const RuleCall& call) {
  if (!call.arguments[kNormEpsilon].isNone()) return call.arguments[kNormEpsilon].toDouble();
  return call.tensor(kNormInput).scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                             : std::numeric_limits<double>::epsilon();
}

std::vector<std::int64_t> normalized_dims(const RuleCall& call) {
  const auto count = static_cast<std::int64_t>(call.arguments[kNormShape].toIntVector().size());
  std::vector<std::int64_t> dims;
  for (std::int64_t i = 0; i < count; ++i) dims.push_back(call.tensor(kNormInput).dim() - count + i);
  return dims;
}

Tensors rms_norm_forward(RuleCall& call) {
  const at::Tensor x = call.tensor(kNormInput);
  const at::Tensor mean = at::mean(at::pow(x, 2), normalized_dims(call), /*keepdim=*/true);
  const at::Tensor scale = at::rsqrt(at::add(mean, epsilon_of(call)));
  call.saved = {scale};
  const at::Tensor normalized = at::mul(x, scale);
  return {call.tensor(kNormWeight).defined() ? at::mul(normalized, call.tensor(kNormWeight)) : normalized};
}

void rms_norm_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const at::Tensor x = call.tensor(kNormInput);
  const at::Tensor weight = call.tensor(kNormWeight);
  const at::Tensor& scale = call.saved[0];
  const at::Tensor normalized = at::mul(x, scale);
  if (call.needs_gradient(kNormWeight)) call.give(weight, at::mul(cotangent, normalized));
  if (!call.needs_gradient(kNormInput)) return;
  const at::Tensor weighted = weight.defined() ? at::mul(cotangent, weight) : cotangent;
  const at::Tensor along = at::mean(at::mul(weighted, normalized), normalized_dims(call), /*keepdim=*/true);
  call.give(x, at::mul(at::sub(weighted, at::mul(normalized, along)), scale));
}

// --- group norm without elements

bool group_norm_applies(const RuleCall& call) { return call.tensor(kNormInput).numel() == 0; }

Tensors group_norm_forward(RuleCall& call) {
  enum : std::size_t { kX, kGroups, kScale, kShift, kEps };
  const auto optional = [&](std::size_t i) {
    return call.tensor(i).defined() ? std::make_optional(call.tensor(i)) : std::nullopt;
  };
  return {at::group_norm(call.tensor(kX), call.arguments[kGroups].toInt(), optional(kScale), optional(kShift),
                         call.arguments[kEps].toDouble())};
}

void group_norm_backward(RuleCall& call) {
  // The scale's is zero times a mean of no numbers, as in PyTorch's kernel.
  const at::Tensor x = call.tensor(kNormInput);
  const double of_scale = x.size(0) == 0 || x.size(1) == 0 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  if (call.needs_gradient(0)) call.give(x, at::zeros_like(x));
  if (call.needs_gradient(2)) call.give(call.tensor(2), at::full_like(call.tensor(2), of_scale));
  if (call.needs_gradient(3)) call.give(call.tensor(3), at::zeros_like(call.tensor(3)));
}

// --- group norm of columns

bool group_norm_of_columns_applies(const RuleCall& call) { return GroupNorm(call.arguments).has_columns(); }

Tensors group_norm_of_columns_forward(RuleCall& call) {
  const GroupNorm norm(call.arguments);
  const auto moments = norm.moments();
  call.saved = {moments.mean, moments.reciprocal_deviation};
  return {norm.normalized(moments)};
}

void group_norm_of_columns_backward(RuleCall& call) {
  if (!call.cotangent(0).defined()) return;
  const GroupNorm norm(call.arguments);
  const auto gradients = norm.gradients(call.cotangent(0), {call.saved[0], call.saved[1]});
  if (call.needs_gradient(GroupNorm::kInput)) call.give(call.tensor(GroupNorm::kInput), gradients.input);
  if (call.needs_gradient(GroupNorm::kWeight)) call.give(call.tensor(GroupNorm::kWeight), gradients.weight);
  if (call.needs_gradient(GroupNorm::kBias)) call.give(call.tensor(GroupNorm::kBias), gradients.bias);
}

// --- batch norm of columns, without running statistics (channels_last.h takes these out)

bool batch_norm_applies(const RuleCall& call) {
  std::vector<c10::IValue> arguments = call.arguments;
  const BatchNorm norm(arguments);
  return norm.is_training() && !norm.has_running_statistics() && norm.has_columns();
}

Tensors batch_norm_forward(RuleCall& call) {
  const BatchNorm norm(call.arguments);
  const auto [mean, variance] = norm.moments();
  call.saved = {mean, norm.reciprocal_deviation(variance)};
  return {norm.normalized(mean, call.saved[1])};
}

void batch_norm_backward(RuleCall& call) {
  if (!call.cotangent(0).defined()) return;
  const at::Tensor cotangent = BatchNorm::widened(call.cotangent(0));
  const BatchNorm norm(call.arguments);
  const at::Tensor weight = call.tensor(BatchNorm::kWeight);
  const at::Tensor bias = call.tensor(BatchNorm::kBias);
  const at::Tensor& rstd = call.saved[1];
  const at::Tensor centered = at::sub(BatchNorm::widened(norm.input()), call.saved[0]);
  const at::Tensor sum = at::sum(cotangent, norm.reduced(), /*keepdim=*/true);
  const at::Tensor product = at::sum(at::mul(cotangent, centered), norm.reduced(), /*keepdim=*/true);
  if (call.needs_gradient(BatchNorm::kBias)) call.give(bias, norm.of_channels(sum));
  if (call.needs_gradient(BatchNorm::kWeight)) call.give(weight, norm.of_channels(at::mul(product, rstd)));
  if (!call.needs_gradient(BatchNorm::kInput)) return;
  const auto count = static_cast<double>(norm.count());
  const at::Tensor scale = weight.defined() ? at::mul(rstd, norm.along_channels(weight)) : rstd;
  const at::Tensor along = at::div(at::mul(at::mul(rstd, rstd), product), count);
  const at::Tensor rest = at::sub(at::sub(cotangent, at::div(sum, count)), at::mul(centered, along));
  call.give(norm.input(), norm.rounded(at::mul(rest, scale)));
}

// --- batch norm of contiguous images

bool batch_norm_of_rows_applies(const RuleCall& call) {
  std::vector<c10::IValue> arguments = call.arguments;
  const BatchNorm norm(arguments);
  return norm.is_training() && norm.has_rows() && !(call.is_inside && norm.has_running_statistics());
}

Tensors batch_norm_of_rows_forward(RuleCall& call) {
  const BatchNorm norm(call.arguments);
  const auto optional = [&](std::size_t i) {
    return call.tensor(i).defined() ? std::make_optional(call.tensor(i)) : std::nullopt;
  };
  const at::Tensor x = norm.input();
  const auto weight = optional(BatchNorm::kWeight);
  const auto bias = optional(BatchNorm::kBias);
  const double momentum = call.arguments[BatchNorm::kMomentum].toDouble();
  const double epsilon = call.arguments[BatchNorm::kEpsilon].toDouble();
  if (!norm.has_running_statistics()) {
    auto [result, mean, rstd] = at::_native_batch_norm_legit(x, weight, bias, /*training=*/true, momentum, epsilon);
    call.saved = {mean, rstd};
    return {result};
  }
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor running_mean = call.tensor(BatchNorm::kRunningMean);
  const at::Tensor running_variance = call.tensor(BatchNorm::kRunningVariance);
  auto [result, mean, rstd, next_mean, next_variance] = at::_native_batch_norm_legit_functional(
      x, weight, bias, running_mean, running_variance, /*training=*/true, momentum, epsilon);
  running_mean.copy_(next_mean);
  running_variance.copy_(next_variance);
  call.saved = {mean, rstd};
  return {result};
}

void batch_norm_of_rows_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const std::array given{BatchNorm::kInput, BatchNorm::kWeight, BatchNorm::kBias};
  std::array<bool, 3> needed{};
  for (std::size_t i = 0; i < given.size(); ++i) needed[i] = call.needs_gradient(given[i]);
  const at::Tensor weight = call.tensor(BatchNorm::kWeight);
  const auto [of_input, of_weight, of_bias] = at::native_batch_norm_backward(
      cotangent, call.tensor(BatchNorm::kInput), weight.defined() ? std::make_optional(weight) : std::nullopt,
      std::nullopt, std::nullopt, call.saved[0], call.saved[1], /*train=*/true,
      call.arguments[BatchNorm::kEpsilon].toDouble(), needed);
  if (needed[0]) call.give(call.tensor(BatchNorm::kInput), of_input);
  if (needed[1]) call.give(weight, of_weight);
  if (needed[2]) call.give(call.tensor(BatchNorm::kBias), of_bias);
}

constexpr GradRule kNormRules[] = {
    {"aten::batch_norm", "", "moves the running statistics apart from what is fused", &batch_norm_of_rows_applies,
     &batch_norm_of_rows_forward, &batch_norm_of_rows_backward},
    {"aten::batch_norm", "", "arithmetic that is fused with what stands around it", &batch_norm_applies,
     &batch_norm_forward, &batch_norm_backward},
    {"aten::group_norm", "", "PyTorch's derivative divides by the number of elements, which is zero",
     &group_norm_applies, &group_norm_forward, &group_norm_backward},
    {"aten::group_norm", "", "arithmetic that is fused with what stands around it", &group_norm_of_columns_applies,
     &group_norm_of_columns_forward, &group_norm_of_columns_backward},
    {"aten::rms_norm", "", "saves the scales of the rows instead of the normalized input", &rms_norm_applies,
     &rms_norm_forward, &rms_norm_backward},
};

}  // namespace

std::span<const GradRule> norm_rules() { return kNormRules; }

}  // namespace thunder::transforms
