#include "transforms/group_norm.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <optional>

namespace thunder::transforms {

GroupNorm::GroupNorm(const std::vector<c10::IValue>& arguments)
    : arguments_(arguments), given_(arguments[kInput].toTensor()), groups_(arguments[kGroups].toInt()) {
  input_ = given_.is_floating_point() ? given_.to(at::toOpMathType(given_.scalar_type())) : given_;
  for (std::int64_t dim = 2; dim < given_.dim(); ++dim) places_.push_back(dim);
}

at::Tensor GroupNorm::tensor(Argument argument) const {
  return arguments_[argument].isNone() ? at::Tensor() : arguments_[argument].toTensor();
}

bool GroupNorm::has_columns() const {
  const auto is_plain = [&](Argument argument) {
    const at::Tensor given = tensor(argument);
    return !given.defined() || given.scalar_type() == at::kFloat || given.scalar_type() == given_.scalar_type();
  };
  // As PyTorch sees it, to which strides of dimensions of size one matter, too.
  const at::MemoryFormat format = given_.suggest_memory_format();
  const bool has_columns = format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
  return has_columns && given_.is_contiguous(format) && !given_.is_contiguous() && given_.is_floating_point() &&
         given_.is_cpu() && given_.numel() > 0 && is_plain(kWeight) && is_plain(kBias) && groups_ > 0 &&
         given_.size(1) % groups_ == 0;
}

at::Tensor GroupNorm::by_groups(const at::Tensor& tensor) const {
  return at::reshape(tensor, {given_.size(0), groups_, -1});
}

at::Tensor GroupNorm::by_channels(const at::Tensor& tensor) const {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(given_.dim()), 1);
  sizes[0] = given_.size(0);
  sizes[1] = given_.size(1);
  const std::vector<std::int64_t> all{sizes[0], groups_, sizes[1] / groups_};
  return at::reshape(tensor.sizes().equals(all) ? tensor : at::expand_copy(tensor, all), sizes);
}

at::Tensor GroupNorm::weight() const {
  const at::Tensor weight = tensor(kWeight);
  return weight.defined() ? at::reshape(weight.to(input_.scalar_type()), {1, groups_, -1}) : at::Tensor();
}

at::Tensor GroupNorm::scaled(const at::Tensor& tensor) const {
  const at::Tensor factor = weight();
  return factor.defined() ? at::mul(tensor, factor) : tensor;
}

GroupNorm::Moments GroupNorm::moments() const {
  const auto [variances, means] = at::var_mean(input_, places_, std::make_optional<at::Scalar>(0));
  const at::Tensor each = by_groups(means);
  const at::Tensor mean = at::mean(each, {2}, /*keepdim=*/true);
  const at::Tensor apart = at::sub(each, mean);
  const at::Tensor variance = at::mean(at::add(by_groups(variances), at::mul(apart, apart)), {2}, /*keepdim=*/true);
  return {by_channels(mean), at::rsqrt(at::add(variance, arguments_[kEpsilon].toDouble()))};
}

at::Tensor GroupNorm::normalized(const Moments& moments) const {
  const at::Tensor centered = at::sub(input_, moments.mean);
  const at::Tensor result = at::mul(centered, by_channels(scaled(moments.reciprocal_deviation)));
  const at::Tensor bias = tensor(kBias);
  if (!bias.defined()) return result.to(given_.scalar_type());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(given_.dim()), 1);
  sizes[1] = -1;
  return at::add(result, at::reshape(bias.to(input_.scalar_type()), sizes)).to(given_.scalar_type());
}

GroupNorm::Gradients GroupNorm::gradients(const at::Tensor& given, const Moments& moments) const {
  const auto& [mean, rstd] = moments;
  const at::Tensor cotangent = given.to(input_.scalar_type());
  const at::Tensor centered = at::sub(input_, mean);
  const at::Tensor sums = by_groups(at::sum(cotangent, places_));
  const at::Tensor products = at::mul(by_groups(at::sum(at::mul(cotangent, centered), places_)), rstd);
  const auto count = static_cast<double>(given_.numel() / (given_.size(0) * groups_));
  const auto share = [&](const at::Tensor& of_channels) {
    return at::div(at::mul(at::sum(scaled(of_channels), {2}, /*keepdim=*/true), rstd), count);
  };
  const at::Tensor slope = at::mul(share(products), rstd);
  const at::Tensor along = at::add(at::mul(centered, by_channels(slope)), by_channels(share(sums)));
  const at::Tensor of_input = at::sub(at::mul(cotangent, by_channels(scaled(rstd))), along);
  const auto of_channels = [](const at::Tensor& tensor) { return at::reshape(at::sum(tensor, {0}), {-1}); };
  return {of_input, of_channels(products), of_channels(sums)};
}

}  // namespace thunder::transforms
