#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace thunder::bridge {

/// The state of PyTorch's CPU generator, and its replacement.
[[nodiscard]] at::Tensor random_state();
void set_random_state(const at::Tensor& state);

/// A new generator, as `torch.Generator(device)` gives.
[[nodiscard]] at::Generator make_generator(c10::Device device);

}  // namespace thunder::bridge
