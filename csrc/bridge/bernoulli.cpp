#include "bridge/bernoulli.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "bridge/generator_states.h"
#include "bridge/random.h"

namespace thunder::bridge {
namespace {

constexpr std::int64_t kMetaStateBytes = 5056;  // as of a CPU generator

}  // namespace

void fill_bernoulli(const at::Tensor& tensor, double p, const at::Generator& generator) {
  tensor.bernoulli_(p, generator);
}

std::tuple<at::Tensor, at::Tensor> bernoulli_with_state(at::IntArrayRef size, at::IntArrayRef stride,
                                                        at::ScalarType dtype, c10::Device device, double p,
                                                        const std::optional<at::Generator>& generator,
                                                        FillBernoulli fill) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  if (device.is_meta()) {
    return {at::empty_strided(size, stride, options), at::empty({kMetaStateBytes}, options.dtype(at::kByte))};
  }
  const at::Generator source = generator ? *generator : at::globalContext().defaultGenerator(device);
  at::Tensor result = at::empty_strided(size, stride, options);
  if (is_captured(source)) {
    fill(result, p, source);
    at::Tensor kept = result.clone();  // the program may write to the result
    return {std::move(result), std::move(kept)};
  }
  at::Tensor state = state_before(source, [&](const at::Generator& copy) { fill(result, p, copy); });
  return {std::move(result), std::move(state)};
}

at::Tensor bernoulli_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                at::ScalarType dtype, c10::Device device, double p, FillBernoulli fill) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  if (device.is_meta()) return at::empty_strided(size, stride, options);
  if (!state.is_cpu()) return state.clone();  // the tensor itself, to which the program may write
  at::Generator generator = make_generator(device);
  generator.set_state(state);
  at::Tensor result = at::empty_strided(size, stride, options);
  fill(result, p, generator);
  return result;
}

}  // namespace thunder::bridge
