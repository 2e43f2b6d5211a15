#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "bridge/bernoulli.h"

namespace thunder::bridge {

/// Draws as `native_dropout(input, p, true)` does, for a dense tensor of floats and 0 < p < 1. Gives the output, the
/// mask and, for `native_dropout_mask_from_state`, the state that the default generator had before. No other thread
/// draws in between. Where that state would not give the mask again, the mask stands in its place: while a CUDA graph
/// is captured, and for memory on CUDA that is not aligned.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> native_dropout_with_state(
    const at::Tensor& input, double p, FillBernoulli fill = &fill_bernoulli);

/// The mask that was drawn at that state for an input of this size, stride and dtype. No generator of the program's is
/// touched.
[[nodiscard]] at::Tensor native_dropout_mask_from_state(const at::Tensor& state, at::IntArrayRef size,
                                                        at::IntArrayRef stride, at::ScalarType dtype,
                                                        c10::Device device, double p,
                                                        FillBernoulli fill = &fill_bernoulli);

}  // namespace thunder::bridge
