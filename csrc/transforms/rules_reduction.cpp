// Reductions whose derivative in PyTorch reads data, or saves more than it needs.
#include <ATen/ATen.h>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

at::Tensor sum_from_here(const at::Tensor& tensor, std::int64_t dim) {
  return at::flip(at::cumsum(at::flip(tensor, {dim}), dim), {dim});
}

// --- cumprod
//
// Before the first zero of a row, the gradient is the sum of cotangent times result from there on, over the input. At
// the first zero, it is the same sum with products that leave that zero out, up to the second zero. Behind it, it is
// zero. PyTorch decides between these cases by looking at the data, or else differentiates each element by itself.

Tensors cumprod_forward(RuleCall& call) {
  std::optional<at::ScalarType> dtype;
  if (!call.arguments[2].isNone()) dtype = call.arguments[2].toScalarType();
  const at::Tensor result = at::cumprod(call.tensor(0), call.arguments[1].toInt(), dtype);
  call.saved = {result};
  return {result};
}

void cumprod_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  if (cotangent.dim() == 0) return call.give(call.tensor(0), cotangent);
  const std::int64_t dim = call.arguments[1].toInt();
  const at::Tensor result = call.saved[0];
  const at::Tensor input = call.tensor(0).to(result.scalar_type());
  const at::Tensor is_zero = at::eq(input, 0);
  const at::Tensor zeros_so_far = at::cumsum(is_zero, dim);
  const at::Tensor before = at::eq(zeros_so_far, 0);
  const at::Tensor after_one = at::eq(zeros_so_far, 1);
  const at::Tensor at_first_zero = at::logical_and(is_zero, after_one);

  const at::Tensor divisor = at::masked_fill(input, is_zero, 1).conj();
  const at::Tensor regular = at::div(sum_from_here(at::mul(cotangent, result.conj()), dim), divisor);
  const at::Tensor without_zero = at::cumprod(at::masked_fill(input, at_first_zero, 1), dim).conj();
  const at::Tensor up_to_second_zero = at::masked_fill(at::mul(cotangent, without_zero), at::logical_not(after_one), 0);
  const at::Tensor at_zero = sum_from_here(up_to_second_zero, dim);
  const at::Tensor nothing = at::zeros_like(regular);
  call.give(call.tensor(0), at::where(before, regular, at::where(at_first_zero, at_zero, nothing)));
}

// --- the largest and the smallest of all
//
// The cotangent is shared by all elements that are the result. PyTorch reads whether that is NaN, or else multiplies by
// the mask, which makes NaN of a cotangent that is not finite.

Tensors max_forward(RuleCall& call) { return call.saved = {at::max(call.tensor(0))}; }
Tensors min_forward(RuleCall& call) { return call.saved = {at::min(call.tensor(0))}; }

void extremum_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const at::Tensor x = call.tensor(0);
  const at::Tensor& result = call.saved[0];
  const at::Tensor both_nan = at::logical_and(at::isnan(x), at::isnan(result));
  const at::Tensor is_result = at::logical_or(at::eq(x, result), both_nan);
  call.give(x, at::where(is_result, at::div(cotangent, at::sum(is_result)), 0));
}

constexpr char kMasked[] = "chooses by a mask; PyTorch reads data, or multiplies by the mask";

constexpr GradRule kReductionRules[] = {
    {"aten::max", "", kMasked, nullptr, &max_forward, &extremum_backward},
    {"aten::min", "", kMasked, nullptr, &min_forward, &extremum_backward},
    {"aten::cumprod", "", "a formula for all data; PyTorch's reads it, to see where the zeros are", nullptr,
     &cumprod_forward, &cumprod_backward},
};

}  // namespace

std::span<const GradRule> reduction_rules() { return kReductionRules; }

}  // namespace thunder::transforms
