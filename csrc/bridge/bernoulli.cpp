#include "bridge/bernoulli.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <mutex>

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
  at::Generator source = generator ? *generator : at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(source.mutex());
  at::Tensor state = source.get_state();
  const at::Generator copy = source.clone();  // ATen's kernels lock the generator that they draw from
  at::Tensor result = at::empty_strided(size, stride, options);
  fill(result, p, copy);
  source.set_state(copy.get_state());
  return {std::move(result), std::move(state)};
}

at::Tensor bernoulli_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                at::ScalarType dtype, c10::Device device, double p, FillBernoulli fill) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  if (device.is_meta()) return at::empty_strided(size, stride, options);
  at::Generator generator = make_generator(device);
  generator.set_state(state);
  at::Tensor result = at::empty_strided(size, stride, options);
  fill(result, p, generator);
  return result;
}

}  // namespace thunder::bridge
