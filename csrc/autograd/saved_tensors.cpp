#include "autograd/saved_tensors.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <string_view>

#include "autograd/backward_graph.h"

namespace thunder::autograd {
namespace {

using torch::autograd::Node;
using torch::dynamo::autograd::AutogradCompilerCall;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SizeInput;

/// Has the node hand out all that it has saved, which compares versions and computes nothing.
bool finds_write(Node& node) {
  if (dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr) return false;
  AutogradCompilerCall compiler(SizeInput::STATIC);
  CompiledNodeArgs saved(compiler, compiler.node_calls.lookup(node.getptr()));
  try {
    node.compiled_args(saved);
  } catch (const c10::Error& error) {
    const std::string_view message = error.what_without_backtrace();
    return message.find("modified by an inplace operation") != message.npos;
  }
  return false;
}

}  // namespace

bool is_saved_overwritten(std::span<const at::Tensor> outputs) {
  return std::ranges::any_of(outputs, [](const at::Tensor& output) {
    return output.defined() && output.grad_fn() != nullptr &&
           any_node_behind(torch::autograd::impl::gradient_edge(output), finds_write);
  });
}

}  // namespace thunder::autograd
