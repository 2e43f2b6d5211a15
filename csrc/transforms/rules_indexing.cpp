// Operations on places given by indices whose derivative in PyTorch reads data.
#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

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
  const at::Tensor nowhere = at::zeros_like(cotangent, cotangent.options().dtype(at::kBool));
  const at::Tensor places = at::index_fill(nowhere, call.arguments[1].toInt(), call.tensor(2), 1);
  call.give(call.tensor(3), at::where(places, cotangent, at::zeros({}, cotangent.options())).sum());
}

// Scatters into a slice, which writes become. For complex numbers PyTorch has no derivative of them: it refuses one
// where a gradient that was made so is differentiated again.

bool is_of_complex_numbers(const RuleCall& call) { return call.tensor(0).is_complex() && call.tensor(1).is_complex(); }

struct Slice {
  std::int64_t dim;
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> end;
  std::int64_t step;
};

Slice slice_of(const RuleCall& call) {
  return {call.arguments[2].toInt(), call.arguments[3].toOptional<std::int64_t>(),
          call.arguments[4].toOptional<std::int64_t>(), call.arguments[5].toInt()};
}

Tensors slice_scatter_forward(RuleCall& call) {
  const auto [dim, start, end, step] = slice_of(call);
  return {at::slice_scatter(call.tensor(0), call.tensor(1), dim, start, end, step)};
}

void slice_scatter_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const auto [dim, start, end, step] = slice_of(call);
  if (call.needs_gradient(0)) {
    const at::Tensor nothing = at::zeros(call.tensor(1).sizes(), cotangent.options());
    call.give(call.tensor(0), at::slice_scatter(cotangent, nothing, dim, start, end, step));
  }
  if (call.needs_gradient(1)) call.give(call.tensor(1), at::slice(cotangent, dim, start, end, step));
}

Tensors select_scatter_forward(RuleCall& call) {
  return {at::select_scatter(call.tensor(0), call.tensor(1), call.arguments[2].toInt(), call.arguments[3].toInt())};
}

void select_scatter_backward(RuleCall& call) {
  const at::Tensor cotangent = call.cotangent(0);
  if (!cotangent.defined()) return;
  const std::int64_t dim = call.arguments[2].toInt();
  const std::int64_t index = call.arguments[3].toInt();
  if (call.needs_gradient(0)) {
    const at::Tensor nothing = at::zeros(call.tensor(1).sizes(), cotangent.options());
    call.give(call.tensor(0), at::select_scatter(cotangent, nothing, dim, index));
  }
  if (call.needs_gradient(1)) call.give(call.tensor(1), at::select(cotangent, dim, index));
}

constexpr GradRule kIndexingRules[] = {
    {"aten::index_fill", "int_Tensor", "sums over a mask; PyTorch reads the places, to count each once", nullptr,
     &index_fill_forward, &index_fill_backward},
    {"aten::slice_scatter", "", "complex numbers, which PyTorch has no derivative for", &is_of_complex_numbers,
     &slice_scatter_forward, &slice_scatter_backward},
    {"aten::select_scatter", "", "complex numbers, which PyTorch has no derivative for", &is_of_complex_numbers,
     &select_scatter_forward, &select_scatter_backward},
};

}  // namespace

std::span<const GradRule> indexing_rules() { return kIndexingRules; }

}  // namespace thunder::transforms
