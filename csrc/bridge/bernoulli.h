#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace thunder::bridge {

/// Fills a dense tensor as `bernoulli_(p, generator)` does.
using FillBernoulli = void (*)(const at::Tensor& tensor, double p, const at::Generator& generator);
void fill_bernoulli(const at::Tensor& tensor, double p, const at::Generator& generator);

/// A dense tensor of zeros and ones, each one with the probability `p`, as `bernoulli_` draws it from `generator`
/// (none: the device's default one), and the state of the generator before, for `bernoulli_from_state`. No other thread
/// draws in between. While a CUDA graph is captured, a copy of the tensor stands in the state's place.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> bernoulli_with_state(at::IntArrayRef size, at::IntArrayRef stride,
                                                                      at::ScalarType dtype, c10::Device device,
                                                                      double p,
                                                                      const std::optional<at::Generator>& generator,
                                                                      FillBernoulli fill = &fill_bernoulli);

/// The tensor that was drawn at that state. No generator of the program's is touched.
[[nodiscard]] at::Tensor bernoulli_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                              at::ScalarType dtype, c10::Device device, double p,
                                              FillBernoulli fill = &fill_bernoulli);

}  // namespace thunder::bridge
