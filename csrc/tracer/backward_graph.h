#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace thunder::tracer {

/// Gradients of `outputs` with respect to `inputs` (leaves), given one cotangent for each output (undefined: zero), on
/// the calling thread and without hooks: what PyTorch's engine computes, broadcasts reduced and dtypes restored.
/// The graph can be walked again. Undefined tensors stand for gradients that are zero.
[[nodiscard]] std::vector<at::Tensor> walk_backward(std::span<const at::Tensor> outputs,
                                                    std::span<const at::Tensor> cotangents,
                                                    std::span<const at::Tensor> inputs);

/// The leaves that the graph behind `output` ends in.
[[nodiscard]] std::vector<at::Tensor> leaves_behind(const at::Tensor& output);

}  // namespace thunder::tracer
