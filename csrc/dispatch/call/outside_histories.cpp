#include "dispatch/call/outside_histories.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "autograd/backward_graph.h"

namespace thunder::dispatch {
namespace {

using torch::autograd::impl::gradient_edge;

bool is_computed_from(const at::Tensor& tensor, const at::Tensor& other) {
  if (!tensor.requires_grad() || !other.requires_grad() || tensor.is_leaf()) return false;
  const auto maker = gradient_edge(other).function;
  return autograd::any_node_behind(gradient_edge(tensor),
                                   [&](const torch::autograd::Node& node) { return &node == maker.get(); });
}

}  // namespace

bool OutsideHistories::match(const std::vector<at::Tensor>& inputs) const {
  return std::ranges::none_of(pairs_,
                              [&](const Pair& pair) { return is_computed_from(inputs[pair.from], inputs[pair.to]); });
}

}  // namespace thunder::dispatch
