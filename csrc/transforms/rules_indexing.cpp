// Operations on places given by indices whose derivative in PyTorch reads data.
#include <ATen/ATen.h>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

// index_fill with a tensor as value: PyTorch looks for the distinct places to sum the value's gradient over.

Tensors index_fill_forward(RuleCall& call) {
  return {at::index_fill(call.tensor(0), call.arguments[1].toInt(), call.tensor(2), call.tensor(3))};
}

void index_fill_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const at::Tensor kept = at::index_fill(cotangent, call.arguments[1].toInt(), call.tensor(2), 0);
  if (call.needs_gradient(0)) call.give(call.tensor(0), kept);
  if (!call.needs_gradient(3)) return;
  const at::Tensor places = at::index_fill(at::zeros_like(cotangent), call.arguments[1].toInt(), call.tensor(2), 1);
  call.give(call.tensor(3), at::mul(cotangent, places).sum());
}

constexpr GradRule kIndexingRules[] = {
    {"aten::index_fill", "int_Tensor", "sums over a mask; PyTorch reads the places, to count each once", nullptr,
     &index_fill_forward, &index_fill_backward},
};

}  // namespace

std::span<const GradRule> indexing_rules() { return kIndexingRules; }

}  // namespace thunder::transforms
