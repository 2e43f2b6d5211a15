#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <functional>
#include <vector>

namespace thunder::runtime {

// `torch._dynamo.compiled_autograd` makes one graph of a backward. A compiled function is one call in it, which
// runs as it is: the values that its node saved are inputs of the graph, and so are its cotangents.

/// The values that a node saved, in the order in which `GraphBackward` takes them.
struct SavedInGraph {
  std::vector<torch::autograd::SavedVariable>& variables;
  std::vector<c10::IValue>& plain;
};

/// Gives a gradient, or an undefined tensor, for each edge of the node. `saved`: the variables, then the plain values.
/// Graphs keep it, and may call it for other nodes of the same program.
using GraphBackward = std::function<std::vector<at::Tensor>(
    std::vector<at::Tensor> cotangents, const std::vector<bool>& needed, std::vector<c10::IValue> saved)>;

/// Calls `backward` in the graph that is made, in the place of `node`. `saved` is what the node told the compiler of in
/// its `compiled_args`, in the same order.
[[nodiscard]] std::vector<at::Tensor> call_in_graph(torch::autograd::Node& node, const SavedInGraph& saved,
                                                    const std::vector<at::Tensor>& cotangents, GraphBackward backward,
                                                    torch::dynamo::autograd::SwapSavedVariables& compiler);

}  // namespace thunder::runtime
