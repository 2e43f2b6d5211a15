#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/differentiable_program.h"
#include "runtime/graph_runner.h"
#include "runtime/versions.h"

namespace thunder::runtime {

/// Runs the forward program and hangs its outputs in PyTorch's autograd graph by one node that runs the backward
/// programs. Inputs written to after the forward are detected as in eager. The gradients cannot be differentiated
/// again: doing so raises an error. Without retain_graph a backward leaves behind what it did not read, for one that
/// comes from other outputs. `graphs`: runs the programs where it can; null: nothing does.
[[nodiscard]] std::vector<at::Tensor> run_with_autograd(const std::shared_ptr<const DifferentiableProgram>& program,
                                                        std::vector<at::Tensor> inputs, const Versions& versions = {},
                                                        const std::shared_ptr<GraphRunner>& graphs = nullptr);

}  // namespace thunder::runtime
