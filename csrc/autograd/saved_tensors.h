#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace thunder::autograd {

/// Whether nodes of PyTorch's behind `outputs` have saved a tensor that has been written to since: a backward through
/// them raises.
[[nodiscard]] bool is_saved_overwritten(std::span<const at::Tensor> outputs);

}  // namespace thunder::autograd
