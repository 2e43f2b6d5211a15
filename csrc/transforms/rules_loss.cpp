// Losses.
#include <ATen/ATen.h>

#include <tuple>

#include "transforms/rule_lists.h"

namespace thunder::transforms {
namespace {

// --- cross entropy
//
// PyTorch saves the logarithms of the probabilities, as large as the input. The input is there anyway (it came from a
// product, and models return it), so what was subtracted from it is enough: two numbers for each row. Their sum would
// not do: next to a large maximum, the logarithm of the sum is lost to rounding.

enum CrossEntropyArgument : std::size_t { kInput, kTarget, kWeight, kReduction, kIgnored, kSmoothing };

bool cross_entropy_applies(const RuleCall& call) {
  const at::Tensor x = call.tensor(kInput);
  const at::Tensor target = call.tensor(kTarget);
  const bool is_plain = !call.tensor(kWeight).defined() && call.arguments[kSmoothing].toDouble() == 0;
  const bool is_exact = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  return is_plain && is_exact && x.dim() == 2 && x.numel() != 0 && target.dim() == 1 &&
         target.scalar_type() == at::kLong;
}

Tensors cross_entropy_forward(RuleCall& call) {
  const at::Tensor x = call.tensor(kInput);
  const at::Tensor log_probabilities = at::_log_softmax(x, 1, /*half_to_float=*/false);
  auto [loss, total_weight] =
      at::nll_loss_forward(log_probabilities, call.tensor(kTarget), {}, call.arguments[kReduction].toInt(),
                           call.arguments[kIgnored].toInt());
  call.saved = {at::amax(x, {1}, true), at::amax(log_probabilities, {1}, true), total_weight};
  return {loss};
}

void cross_entropy_backward(RuleCall& call) {
  if (!call.cotangent(0).defined()) return;
  const at::Tensor x = call.tensor(kInput);
  const at::Tensor target = call.tensor(kTarget);
  const bool is_mean = call.arguments[kReduction].toInt() == at::Reduction::Mean;
  at::Tensor scale = is_mean ? at::div(call.cotangent(0), call.saved[2]) : call.cotangent(0);
  const at::Tensor is_ignored = at::eq(target, call.arguments[kIgnored].toInt());
  scale = at::masked_fill(scale.expand(target.sizes()), is_ignored, 0).unsqueeze(1);
  const at::Tensor column = at::masked_fill(target, is_ignored, 0).unsqueeze(1);
  const at::Tensor probabilities = at::exp(at::add(at::sub(x, call.saved[0]), call.saved[1]));
  call.give(x, at::scatter_add(at::mul(probabilities, scale), 1, column, at::neg(scale)));
}

// PyTorch saves a buffer that has the size of the input on a CPU and no elements on a GPU, of which its meta kernel
// knows nothing. The derivative, the sigmoid of -x, needs none.

Tensors log_sigmoid_forward(RuleCall& call) { return {std::get<0>(at::log_sigmoid_forward(call.tensor(0)))}; }

void log_sigmoid_backward(RuleCall& call) {
  if (!call.cotangent(0).defined()) return;
  call.give(call.tensor(0), at::mul(call.cotangent(0), at::sigmoid(at::neg(call.tensor(0)))));
}

constexpr GradRule kLossRules[] = {
    {"aten::cross_entropy_loss", "", "saves two numbers for each row instead of all probabilities",
     &cross_entropy_applies, &cross_entropy_forward, &cross_entropy_backward},
    {"aten::log_sigmoid", "", "saves nothing besides the input; PyTorch a buffer of unknown size", nullptr,
     &log_sigmoid_forward, &log_sigmoid_backward},
};

}  // namespace

std::span<const GradRule> loss_rules() { return kLossRules; }

}  // namespace thunder::transforms
