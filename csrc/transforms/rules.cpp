#include "transforms/rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>

#include <algorithm>
#include <utility>

namespace thunder::transforms {

at::Tensor RuleCall::tensor(std::size_t i) const {
  return arguments.at(i).isTensor() ? arguments[i].toTensor() : at::Tensor();
}

void RuleCall::give(const at::Tensor& target, at::Tensor gradient) {
  if (!gradient.defined() || !target.defined() || !target.requires_grad()) return;
  if (gradient.sizes() != target.sizes()) gradient = at::sum_to(std::move(gradient), target.sizes());
  if (gradient.scalar_type() != target.scalar_type()) gradient = gradient.to(target.scalar_type());
  const auto known = std::ranges::find_if(targets, [&](const at::Tensor& tensor) { return tensor.is_same(target); });
  if (known == targets.end()) {
    targets.push_back(target);
    gradients.push_back(std::move(gradient));
    return;
  }
  at::Tensor& sum = gradients[static_cast<std::size_t>(known - targets.begin())];
  sum = at::add(sum, gradient);
}

}  // namespace thunder::transforms
