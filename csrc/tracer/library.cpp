#include "tracer/library.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "autograd/node_pointer.h"
#include "bridge/bernoulli.h"
#include "bridge/counted_dropout.h"
#include "bridge/dropout.h"
#include "bridge/grouped_attention.h"
#include "bridge/random.h"
#include "tracer/host_generator.h"

namespace thunder::tracer {
namespace {

bool has_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.numel() == 0) return true;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != strides[i]) return false;
  }
  return true;
}

at::Tensor restride(const at::Tensor& self, at::IntArrayRef strides) {
  const bool is_plain = !self.is_conj() && !self.is_neg() && !self._is_zerotensor();
  if (is_plain && has_strides(self, strides)) return at::alias(self);
  return at::empty_strided(self.sizes(), strides, self.options()).copy_(self);
}

/// A tensor without elements that has a number of the program for its first size, which other operations take from
/// there.
at::Tensor sized_by(const at::Tensor& number) {
  return at::empty({number.item<std::int64_t>(), 0}, at::TensorOptions(at::kByte));
}

struct RestrideBackward final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

/// No `torch::autograd::Function`: functorch's transforms refuse those, and forward mode is not theirs.
at::Tensor differentiable_restride(c10::DispatchKeySet keys, const at::Tensor& self, at::IntArrayRef strides) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("thunder::restride", "")
                                    .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result = kOperator.redispatch(keys & c10::after_ADInplaceOrView_keyset, self, strides);
  }
  if (torch::autograd::compute_requires_grad(self)) {
    const auto node = autograd::make_node<RestrideBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(self));
    torch::autograd::set_history(result, node);
  }
  constexpr std::uint64_t kLevel = 0;
  if (self._fw_grad(kLevel).defined()) result._set_fw_grad(self._fw_grad(kLevel), kLevel, /*is_inplace_op=*/false);
  return result;
}

std::tuple<at::Tensor, at::Tensor> bernoulli_with_state(at::IntArrayRef size, at::IntArrayRef stride,
                                                        at::ScalarType dtype, c10::Device device, double p,
                                                        const std::optional<at::Generator>& generator) {
  return bridge::bernoulli_with_state(size, stride, dtype, device, p, generator);
}

at::Tensor bernoulli_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                at::ScalarType dtype, c10::Device device, double p) {
  return bridge::bernoulli_from_state(state, size, stride, dtype, device, p);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_dropout_with_state(const at::Tensor& input, double p) {
  return bridge::native_dropout_with_state(input, p);
}

at::Tensor native_dropout_mask_from_state(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride,
                                          at::ScalarType dtype, c10::Device device, double p) {
  return bridge::native_dropout_mask_from_state(state, size, stride, dtype, device, p);
}

/// The gradient of an operation without a derivative. PyTorch's error comes when a backward reaches it.
at::Tensor no_derivative(const at::Tensor&, at::IntArrayRef, at::ScalarType, c10::string_view message) {
  throw std::runtime_error(std::string(message));
}

at::Tensor no_derivative_meta(const at::Tensor& cotangent, at::IntArrayRef size, at::ScalarType dtype,
                              c10::string_view) {
  return at::empty(size, cotangent.options().dtype(dtype));
}

void manual_seed(std::int64_t seed) { at::manual_seed(static_cast<std::uint64_t>(seed)); }

/// No generator: PyTorch's default one for the CPU.
at::Generator generator_or_default(const std::optional<at::Generator>& generator) {
  return generator ? *generator : at::detail::getDefaultCPUGenerator();
}

void seed_generator(const std::optional<at::Generator>& generator, std::int64_t seed) {
  at::Generator target = generator_or_default(generator);
  const std::scoped_lock lock(target.mutex());
  target.set_current_seed(static_cast<std::uint64_t>(seed));
}

at::Tensor generator_state(const std::optional<at::Generator>& generator) {
  at::Generator source = generator_or_default(generator);
  const std::scoped_lock lock(source.mutex());
  return source.get_state();
}

void set_generator_state(const std::optional<at::Generator>& generator, const at::Tensor& state) {
  at::Generator target = generator_or_default(generator);
  const std::scoped_lock lock(target.mutex());
  target.set_state(state);
}

/// Without a generator, as probes call it: zero.
at::Tensor draw(const std::optional<at::Generator>& generator, c10::string_view method,
                c10::ArrayRef<c10::Scalar> arguments, at::ScalarType dtype) {
  return generator ? draw_number(*generator, std::string(method), arguments, dtype)
                   : at::zeros({}, at::TensorOptions(dtype));
}

}  // namespace

void register_library() {
  static const torch::Library* const kLibrary = [] {
    auto* library = new torch::Library(torch::Library::DEF, "thunder", std::nullopt, __FILE__, __LINE__);
    const auto define = [&](const char* schema, torch::CppFunction&& kernel) {
      library->def(schema, std::move(kernel));
    };
    using c10::DispatchKey;
    using torch::dispatch;
    constexpr auto kAnyBackend = DispatchKey::CompositeExplicitAutograd;
    define("restride(Tensor(a) self, int[] strides) -> Tensor(a)", dispatch(kAnyBackend, &restride));
    library->impl("restride", dispatch(DispatchKey::Autograd, &differentiable_restride));
    define("no_derivative(Tensor cotangent, int[] size, ScalarType dtype, str message) -> Tensor",
           dispatch(kAnyBackend, &no_derivative));
    library->impl("no_derivative", dispatch(DispatchKey::Meta, &no_derivative_meta));
    define("sized_by(Tensor number) -> Tensor", dispatch(kAnyBackend, &sized_by));
    define("manual_seed(int seed) -> ()", dispatch(kAnyBackend, &manual_seed));
    define("make_generator(Device device) -> Generator?", dispatch(kAnyBackend, &bridge::make_generator));
    define("seed_generator(Generator? generator, int seed) -> ()", dispatch(kAnyBackend, &seed_generator));
    define("generator_state(Generator? generator) -> Tensor", dispatch(kAnyBackend, &generator_state));
    define("set_generator_state(Generator? generator, Tensor state) -> ()",
           dispatch(kAnyBackend, &set_generator_state));
    define("draw_number(Generator? generator, str method, Scalar[] arguments, ScalarType dtype) -> Tensor",
           dispatch(kAnyBackend, &draw));
    define(
        "bernoulli_with_state(int[] size, int[] stride, ScalarType dtype, Device device, float p, "
        "Generator? generator=None) -> (Tensor, Tensor)",
        dispatch(kAnyBackend, &bernoulli_with_state));
    define(
        "bernoulli_from_state(Tensor state, int[] size, int[] stride, ScalarType dtype, Device device, float p) -> "
        "Tensor",
        dispatch(kAnyBackend, &bernoulli_from_state));
    define("native_dropout_with_state(Tensor input, float p) -> (Tensor, Tensor, Tensor)",
           dispatch(kAnyBackend, &native_dropout_with_state));
    define(
        "native_dropout_mask_from_state(Tensor state, int[] size, int[] stride, ScalarType dtype, Device device, "
        "float p) -> Tensor",
        dispatch(kAnyBackend, &native_dropout_mask_from_state));
    define("dropout_state(int[] size, ScalarType dtype, Device device, Tensor? input=None) -> Tensor",
           dispatch(kAnyBackend, &bridge::dropout_state));
    define("dropout_mask(Tensor state, int[] size, int[] stride, float p) -> Tensor",
           dispatch(kAnyBackend, &bridge::dropout_mask));
    define(
        "grouped_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale, "
        "int[] strides) -> Tensor",
        dispatch(kAnyBackend, &bridge::grouped_attention));
    return library;
  }();
  static_cast<void>(kLibrary);
}

}  // namespace thunder::tracer
