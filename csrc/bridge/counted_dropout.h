#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace thunder::bridge {

// A dropout whose mask each element computes by itself, from a state of four numbers (`base/philox.h`).

/// The state of the dropout of a tensor, on its device: of CUDA's default generator, which goes on by as much as
/// `native_dropout` takes from it. `input`, if it is given, may begin at any address, which PyTorch's masks depend on;
/// else it is aligned. While a CUDA graph is captured, a seed that each replay draws anew.
[[nodiscard]] at::Tensor dropout_state(at::IntArrayRef size, at::ScalarType dtype, c10::Device device,
                                       const std::optional<at::Tensor>& input);

/// The mask at that state, which keeps elements with the probability `1 - p`: on CUDA the one that `native_dropout`
/// draws, where PyTorch's kernel is as we know it.
[[nodiscard]] at::Tensor dropout_mask(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride, double p);

/// `dropout_mask` by operations of PyTorch, on any device.
[[nodiscard]] at::Tensor dropout_mask_by_operations(const at::Tensor& state, at::IntArrayRef size,
                                                    at::IntArrayRef stride, double p);

}  // namespace thunder::bridge
