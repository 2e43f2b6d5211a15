#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "runtime/differentiable_program.h"

namespace torch::autograd {
struct Node;
}

namespace thunder::runtime {

// One node stands for a compiled function in PyTorch's graph, where eager code has one for each operation. A hook, or a
// backward, that asks for the gradient of one of its results sees what comes to the node as the cotangent of that
// result.

/// Tells which output of a node a hook on gradients belongs to, where it is one of Python's; nullopt: unknown.
using HookIndex = std::optional<std::size_t> (*)(const torch::autograd::FunctionPreHook& hook);
void set_hook_index(HookIndex index);

/// The first hook of a node with several outputs, where hooks of one output are to run only where a cotangent of that
/// output comes.
[[nodiscard]] std::unique_ptr<torch::autograd::FunctionPreHook> make_hook_gate(torch::autograd::Node* node);
/// The hook that refuses who would see a part of a gradient only: an output from which others are computed has a
/// gradient by these, which never comes to the node as a cotangent.
[[nodiscard]] std::unique_ptr<torch::autograd::FunctionPreHook> make_partial_gradient_check(
    std::shared_ptr<const DifferentiableProgram> program, torch::autograd::Node* node);

/// `output`, of a differentiable program, is computed from what `view` shows, which is a view that was made of another
/// result or of an input since: a backward that comes by `output` is an error where somebody looks at the gradient of
/// `view`, who would see a part of it.
void refuse_partial_gradient(const at::Tensor& view, const at::Tensor& output);

}  // namespace thunder::runtime
