#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

namespace thunder::runtime {

/// Whether one of the tensors stands for an example of a batch: of `torch.func.vmap`, or of `torch._vmap_internals`, by
/// which `torch.autograd` batches gradients.
[[nodiscard]] bool has_examples(std::span<const at::Tensor> cotangents);

/// Runs a program without batching rules for one example of its cotangents.
using ExampleRun = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>&& cotangents, bool is_last)>;

/// Runs each example of the batches that `cotangents` stand for, of all levels, and gives tensors of the same levels.
[[nodiscard]] std::vector<at::Tensor> run_examples(std::span<const at::Tensor> cotangents, const ExampleRun& run);

}  // namespace thunder::runtime
