// Dropout.
#include <ATen/ATen.h>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

// --- dropout
//
// PyTorch saves the scaled mask in the input's dtype. The mask drawn as booleans takes the same random numbers and a
// quarter of the memory; scaling it again costs the backward a pass over it. Rematerialization draws the mask again
// from the generator's state instead of saving it (`passes/random_draws.h`).

bool dropout_applies(const RuleCall& call) {
  const at::Tensor x = call.tensor(0);
  const double p = call.arguments[1].toDouble();
  return call.arguments[2].toBool() && p > 0 && p < 1 && !x.is_cuda() && at::isFloatingType(x.scalar_type());
}

at::Tensor scaled_mask(const RuleCall& call, const at::Tensor& mask) {
  return at::div(mask.to(call.tensor(0).scalar_type()), 1 - call.arguments[1].toDouble());
}

Tensors dropout_forward(RuleCall& call) {
  const at::Tensor x = call.tensor(0);
  const at::Tensor mask = at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1 - call.arguments[1].toDouble());
  call.saved = {mask};
  return {at::mul(x, scaled_mask(call, mask))};
}

void dropout_backward(RuleCall& call) {
  call.give(call.tensor(0), at::mul(call.cotangent(0), scaled_mask(call, call.saved[0])));
}

constexpr GradRule kNetworkRules[] = {
    {"aten::dropout", "",
     "saves the generator's state, or the mask as booleans, instead of the scaled mask in the input's dtype",
     &dropout_applies, &dropout_forward, &dropout_backward},
};

}  // namespace

std::span<const GradRule> network_rules() { return kNetworkRules; }

}  // namespace thunder::transforms
