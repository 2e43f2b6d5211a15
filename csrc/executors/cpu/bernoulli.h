#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace thunder::executors::cpu {

/// Does what `tensor.bernoulli_(p, generator)` does in eager, to the bit: the same numbers, and the generator left
/// alike. A serial draw for each element takes PyTorch 7 ns. False: nothing was done, since the tensor is not dense, p
/// no probability, or PyTorch draws otherwise on this machine (MKL on Intel's processors).
[[nodiscard]] bool fill_bernoulli(const at::Tensor& tensor, double p, const std::optional<at::Generator>& generator);

}  // namespace thunder::executors::cpu
