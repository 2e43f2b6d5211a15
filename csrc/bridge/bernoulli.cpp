#include "bridge/bernoulli.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <mutex>
#include <span>

#include "bridge/mersenne_twister.h"
#include "bridge/random.h"

namespace thunder::bridge {
namespace {

constexpr std::int64_t kMetaStateBytes = 5056;  // as of a CPU generator

/// ATen's kernel draws number by number; this one gives the same, and leaves the generator the same, in a seventh of
/// the time.
void fill_by_blocks(const at::Tensor& booleans, double p, at::CPUGeneratorImpl& generator) {
  if (booleans.numel() == 0) return;
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  MersenneTwister twister{.words = data.state_,
                          .next = MersenneTwister::kWords - static_cast<std::size_t>(data.left_ - 1)};
  fill_bernoulli(twister, p, std::span(booleans.data_ptr<bool>(), static_cast<std::size_t>(booleans.numel())));
  data.state_ = twister.words;
  data.next_ = static_cast<std::uint32_t>(twister.next);
  data.left_ = static_cast<int>(MersenneTwister::kWords - twister.next) + 1;
  engine.set_data(data);
  generator.set_engine(engine);
}

/// With Intel's library on Intel's processors, ATen's kernel draws one number and takes the rest from that library.
bool aten_draws_by_words() {
  static const bool kAnswer = [] {
    constexpr std::int64_t kCount = 1000;
    constexpr double kProbability = 0.3;
    const auto options = at::TensorOptions(at::kCPU).dtype(at::kBool);
    at::Generator theirs = at::detail::createCPUGenerator();
    at::Generator ours = theirs.clone();
    const at::Tensor expected = at::empty({kCount}, options).bernoulli_(kProbability, theirs);
    const at::Tensor got = at::empty({kCount}, options);
    fill_by_blocks(got, kProbability, *at::check_generator<at::CPUGeneratorImpl>(ours));
    return got.equal(expected) && ours.get_state().equal(theirs.get_state());
  }();
  return kAnswer;
}

at::Tensor draw(at::IntArrayRef size, at::IntArrayRef stride, const at::TensorOptions& options, double p,
                const at::Generator& generator) {
  at::Tensor result = at::empty_strided(size, stride, options);
  if (!options.device().is_cpu() || !aten_draws_by_words()) return result.bernoulli_(p, generator);
  const bool is_bool = options.dtype() == at::kBool;
  const at::Tensor booleans = is_bool ? result : at::empty_strided(size, stride, options.dtype(at::kBool));
  fill_by_blocks(booleans, p, *at::check_generator<at::CPUGeneratorImpl>(generator));
  return is_bool ? result : result.copy_(booleans);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> bernoulli_with_state(at::IntArrayRef size, at::IntArrayRef stride,
                                                        at::ScalarType dtype, c10::Device device, double p,
                                                        const std::optional<at::Generator>& generator) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  if (device.is_meta()) {
    return {at::empty_strided(size, stride, options), at::empty({kMetaStateBytes}, options.dtype(at::kByte))};
  }
  at::Generator source = generator ? *generator : at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(source.mutex());
  at::Tensor state = source.get_state();
  const at::Generator copy = source.clone();  // ATen's kernels lock the generator that they draw from
  at::Tensor result = draw(size, stride, options, p, copy);
  source.set_state(copy.get_state());
  return {std::move(result), std::move(state)};
}

at::Tensor bernoulli_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                at::ScalarType dtype, c10::Device device, double p) {
  const auto options = at::TensorOptions(device).dtype(dtype);
  if (device.is_meta()) return at::empty_strided(size, stride, options);
  at::Generator generator = make_generator(device);
  generator.set_state(state);
  return draw(size, stride, options, p, generator);
}

}  // namespace thunder::bridge
