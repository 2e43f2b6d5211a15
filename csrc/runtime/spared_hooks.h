#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function_hook.h>

namespace thunder::runtime {

/// A hook of the runtime's own, which does nothing where no gradient comes.
struct OwnHook : torch::autograd::FunctionPreHook {};

/// Spares the hooks behind an input that gets no gradient in the backward that runs: in eager, that backward does not
/// come there, and calls none.
void spare_hooks_behind(const torch::autograd::Edge& edge);

/// The hook that was registered, where `hook` stands in front of it to spare it.
[[nodiscard]] const torch::autograd::FunctionPreHook& as_registered(const torch::autograd::FunctionPreHook& hook);

}  // namespace thunder::runtime
