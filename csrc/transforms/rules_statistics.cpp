// Variances and standard deviations at many sizes: PyTorch's formula multiplies by a float that depends on sizes.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transforms/many_sizes.h"
#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

using Dims = std::vector<std::int64_t>;

// Three forms: `var(self, unbiased)`, `var(self, dim, unbiased, keepdim)`, `var(self, dim, correction, keepdim)`.

bool is_of_all(const RuleCall& call) { return call.arguments.size() == 2 || call.arguments[1].isNone(); }

bool keeps_dims(const RuleCall& call) { return call.arguments.size() > 2 && call.arguments[3].toBool(); }

double correction_of(const RuleCall& call) {
  const c10::IValue& given = call.arguments[call.arguments.size() == 2 ? 1 : 2];
  if (given.isBool()) return given.toBool() ? 1.0 : 0.0;
  return given.isNone() ? 1.0 : given.toScalar().toDouble();
}

/// The dimensions that an operation goes over, from the first on; of all dimensions without a list.
Dims dims_of(const RuleCall& call) {
  const std::int64_t rank = call.tensor(0).dim();
  Dims dims;
  if (!is_of_all(call)) dims = call.arguments[1].toIntVector();
  for (std::int64_t& dim : dims) dim += dim < 0 ? rank : 0;
  std::ranges::sort(dims);
  if (!dims.empty()) return dims;
  for (std::int64_t i = 0; i < rank; ++i) dims.push_back(i);
  return dims;
}

std::int64_t count_of(const RuleCall& call) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims_of(call)) count *= call.tensor(0).size(dim);
  return count;
}

/// With two elements or more the divisor is never zero. An empty list of dimensions means all of them in the forward
/// and, for PyTorch's formula, none.
bool is_for_many_sizes(const RuleCall& call) {
  const double correction = correction_of(call);
  if (!is_of_all(call) && call.arguments[1].toIntVector().empty()) return false;
  return ManySizes::are_on() && call.tensor(0).is_floating_point() && (correction == 0.0 || correction == 1.0) &&
         count_of(call) >= 2;
}

at::OptionalIntArrayRef dims_argument(const RuleCall& call, Dims& dims) {
  if (is_of_all(call)) return std::nullopt;
  dims = call.arguments[1].toIntVector();
  return at::OptionalIntArrayRef(dims);
}

/// A cotangent with as many dimensions as what it is the cotangent of had.
at::Tensor with_all_dims(const RuleCall& call, at::Tensor cotangent) {
  if (keeps_dims(call)) return cotangent;
  for (const std::int64_t dim : dims_of(call)) cotangent = at::unsqueeze(cotangent, dim);
  return cotangent;
}

void give_of_variance(RuleCall& call, const at::Tensor& cotangent) {
  const at::Tensor x = call.tensor(0);
  const at::Tensor centered = at::sub(x, at::mean(x, dims_of(call), /*keepdim=*/true));
  const double divisor = static_cast<double>(count_of(call)) - correction_of(call);
  call.give(x, at::mul(at::div(at::mul(with_all_dims(call, cotangent), 2), divisor), centered));
}

void give_of_deviation(RuleCall& call, const at::Tensor& cotangent, const at::Tensor& deviation) {
  const at::Tensor of_variance = at::div(cotangent, at::mul(deviation, 2));
  give_of_variance(call, at::masked_fill(of_variance, at::eq(deviation, 0), 0));
}

void give_of_mean(RuleCall& call, const at::Tensor& cotangent) {
  const at::Tensor x = call.tensor(0);
  call.give(x, at::div(with_all_dims(call, cotangent).expand(x.sizes()), count_of(call)));
}

Tensors var_forward(RuleCall& call) {
  Dims dims;
  return {at::var(call.tensor(0), dims_argument(call, dims), at::Scalar(correction_of(call)), keeps_dims(call))};
}

void var_backward(RuleCall& call) {
  if (call.cotangent(0).defined()) give_of_variance(call, call.cotangent(0));
}

Tensors std_forward(RuleCall& call) {
  Dims dims;
  return call.saved = {
             at::std(call.tensor(0), dims_argument(call, dims), at::Scalar(correction_of(call)), keeps_dims(call))};
}

void std_backward(RuleCall& call) {
  if (call.cotangent(0).defined()) give_of_deviation(call, call.cotangent(0), call.saved[0]);
}

Tensors var_mean_forward(RuleCall& call) {
  Dims dims;
  auto [variance, mean] =
      at::var_mean(call.tensor(0), dims_argument(call, dims), at::Scalar(correction_of(call)), keeps_dims(call));
  return {variance, mean};
}

void var_mean_backward(RuleCall& call) {
  if (call.cotangent(0).defined()) give_of_variance(call, call.cotangent(0));
  if (call.cotangent(1).defined()) give_of_mean(call, call.cotangent(1));
}

Tensors std_mean_forward(RuleCall& call) {
  Dims dims;
  auto [deviation, mean] =
      at::std_mean(call.tensor(0), dims_argument(call, dims), at::Scalar(correction_of(call)), keeps_dims(call));
  call.saved = {deviation};
  return {deviation, mean};
}

void std_mean_backward(RuleCall& call) {
  if (call.cotangent(0).defined()) give_of_deviation(call, call.cotangent(0), call.saved[0]);
  if (call.cotangent(1).defined()) give_of_mean(call, call.cotangent(1));
}

constexpr char kDivides[] =
    "divides by a size, where sizes are symbols; PyTorch multiplies by a float that depends on it";

constexpr GradRule kStatisticsRules[] = {
    {"aten::var", "", kDivides, &is_for_many_sizes, &var_forward, &var_backward},
    {"aten::var", "dim", kDivides, &is_for_many_sizes, &var_forward, &var_backward},
    {"aten::var", "correction", kDivides, &is_for_many_sizes, &var_forward, &var_backward},
    {"aten::std", "", kDivides, &is_for_many_sizes, &std_forward, &std_backward},
    {"aten::std", "dim", kDivides, &is_for_many_sizes, &std_forward, &std_backward},
    {"aten::std", "correction", kDivides, &is_for_many_sizes, &std_forward, &std_backward},
    {"aten::var_mean", "", kDivides, &is_for_many_sizes, &var_mean_forward, &var_mean_backward},
    {"aten::var_mean", "dim", kDivides, &is_for_many_sizes, &var_mean_forward, &var_mean_backward},
    {"aten::var_mean", "correction", kDivides, &is_for_many_sizes, &var_mean_forward, &var_mean_backward},
    {"aten::std_mean", "", kDivides, &is_for_many_sizes, &std_mean_forward, &std_mean_backward},
    {"aten::std_mean", "dim", kDivides, &is_for_many_sizes, &std_mean_forward, &std_mean_backward},
    {"aten::std_mean", "correction", kDivides, &is_for_many_sizes, &std_mean_forward, &std_mean_backward},
};

}  // namespace

std::span<const GradRule> statistics_rules() { return kStatisticsRules; }

}  // namespace thunder::transforms
