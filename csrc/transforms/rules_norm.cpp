// Normalizations.
#include <ATen/ATen.h>

#include <limits>
#include <optional>

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
  return !x.is_cuda() && is_exact && (!weight.defined() || weight.scalar_type() == x.scalar_type());
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

constexpr GradRule kNormRules[] = {
    {"aten::group_norm", "", "PyTorch's derivative divides by the number of elements, which is zero",
     &group_norm_applies, &group_norm_forward, &group_norm_backward},
    {"aten::rms_norm", "", "saves the scales of the rows instead of the normalized input", &rms_norm_applies,
     &rms_norm_forward, &rms_norm_backward},
};

}  // namespace

std::span<const GradRule> norm_rules() { return kNormRules; }

}  // namespace thunder::transforms
