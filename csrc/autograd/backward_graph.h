#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace torch::autograd {
struct AccumulateGrad;
struct Node;
}  // namespace torch::autograd

namespace thunder::autograd {

/// One backward through PyTorch's graph, as its engine would do it (order of nodes, hooks, accumulation, release), but
/// on the calling thread: no GIL or thread questions, and whoever records sees what the nodes do.
struct BackwardWalk {
  std::vector<torch::autograd::Edge> roots;
  std::vector<at::Tensor> cotangents;          ///< one for each root; undefined: zero
  std::vector<torch::autograd::Edge> targets;  ///< edges whose gradients are wanted
  bool accumulate = false;                     ///< run the nodes of leaves: all, or those among the targets
  bool keep_graph = true;
  bool create_graph = false;
  bool run_hooks = true;
  /// Nodes that are not run: what arrives at them is collected.
  std::function<bool(torch::autograd::Node&)> stops_at{};
  /// Whether a gradient has these sizes, which the receiving node expects: then it need not be reduced. Empty: the node
  /// tells.
  std::function<bool(const at::Tensor& gradient, c10::SymIntArrayRef sizes)> has_sizes{};
  /// Gives what lives while a gradient is laid out as its leaf is and added to the leaf's; may be empty.
  std::function<std::shared_ptr<void>()> while_accumulating{};
  /// Called before a leaf's node runs.
  std::function<void(const at::Tensor& leaf)> before_leaf{};
  /// Runs the hooks of a leaf that stands for a tensor from outside on its gradient; may be empty.
  std::function<void(const at::Tensor& leaf, at::Tensor& gradient)> leaf_hooks{};
  std::function<void(const at::Tensor& leaf)> after_leaf{};

  /// One gradient for each target, then one for each edge in `stopped`; undefined: zero.
  std::vector<at::Tensor> run();
  std::vector<torch::autograd::Edge> stopped{};  ///< filled by run: where `stops_at` collected something
};

/// Gradients of `outputs` with respect to `inputs` (leaves), given one cotangent for each output (undefined: zero):
/// what PyTorch's engine computes, broadcasts reduced and dtypes restored. The graph can be walked again. Undefined
/// tensors stand for gradients that are zero. With `create_graph`, by the formulas that can be differentiated again:
/// others read factors of the forward (of `slogdet`, `det`) as if they were constants.
[[nodiscard]] std::vector<at::Tensor> walk_backward(std::span<const at::Tensor> outputs,
                                                    std::span<const at::Tensor> cotangents,
                                                    std::span<const at::Tensor> inputs, bool create_graph = false);

/// Whether `found` holds for a node of the graph behind an edge, down to the leaves.
[[nodiscard]] bool any_node_behind(const torch::autograd::Edge& edge,
                                   const std::function<bool(torch::autograd::Node&)>& found);

}  // namespace thunder::autograd
