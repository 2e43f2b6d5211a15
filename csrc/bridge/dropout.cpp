#include "bridge/dropout.h"

#include <ATen/Context.h>
#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/native_dropout.h>

#include <cstdint>
#include <utility>

#include "bridge/generator_states.h"
#include "bridge/random.h"

namespace thunder::bridge {
namespace {

/// On CUDA the widest vectors are of 16 bytes; the width that fits the memory decides which number an element gets.
bool has_aligned_memory(const at::Tensor& tensor) {
  constexpr std::uintptr_t kVectorBytes = 16;
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kVectorBytes == 0;
}

/// The kernel of `native_dropout` on CUDA, from a generator that is given.
std::pair<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& input, double p, const at::Generator& generator) {
  auto [output, mask] = at::_fused_dropout(input, 1 - p, generator);
  return {std::move(output), mask.view(at::kBool)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_dropout_on_cuda(const at::Tensor& input, double p) {
  const at::Generator& source = at::globalContext().defaultGenerator(input.device());
  if (is_captured(source) || !has_aligned_memory(input)) {
    auto [output, mask] = at::native_dropout(input, p, /*train=*/true);
    at::Tensor kept = mask.clone();  // the program may write to the mask
    return {std::move(output), std::move(mask), std::move(kept)};
  }
  std::pair<at::Tensor, at::Tensor> results;
  at::Tensor state = state_before(source, [&](const at::Generator& copy) { results = fused_dropout(input, p, copy); });
  return {std::move(results.first), std::move(results.second), std::move(state)};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_dropout_with_state(const at::Tensor& input, double p,
                                                                         FillBernoulli fill) {
  if (input.is_cuda()) return native_dropout_on_cuda(input, p);
  auto [mask, state] =
      bernoulli_with_state(input.sizes(), input.strides(), at::kBool, input.device(), 1 - p, std::nullopt, fill);
  at::Tensor output = input.mul(mask).mul_(1 / (1 - p));
  return {std::move(output), std::move(mask), std::move(state)};
}

at::Tensor native_dropout_mask_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                          at::ScalarType dtype, c10::Device device, double p, FillBernoulli fill) {
  if (!device.is_cuda()) return bernoulli_from_state(state, size, stride, at::kBool, device, 1 - p, fill);
  if (state.is_cuda()) return state.clone();  // the mask itself, to which the program may write
  at::Generator generator = make_generator(device);
  generator.set_state(state);
  return fused_dropout(at::empty_strided(size, stride, at::TensorOptions(device).dtype(dtype)), p, generator).second;
}

}  // namespace thunder::bridge
