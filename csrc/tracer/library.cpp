#include "tracer/library.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "bridge/random.h"

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
  if (has_strides(self, strides)) return at::alias(self);
  return at::empty_strided(self.sizes(), strides, self.options()).copy_(self);
}

struct Restride : torch::autograd::Function<Restride> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& self, at::IntArrayRef strides) {
    static const auto kOperator = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow("thunder::restride", "")
                                      .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return kOperator.call(self, strides);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

at::Tensor differentiable_restride(const at::Tensor& self, at::IntArrayRef strides) {
  return Restride::apply(self, strides);
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
    define("manual_seed(int seed) -> ()", dispatch(kAnyBackend, &manual_seed));
    define("make_generator(Device device) -> Generator?", dispatch(kAnyBackend, &bridge::make_generator));
    define("seed_generator(Generator? generator, int seed) -> ()", dispatch(kAnyBackend, &seed_generator));
    define("generator_state(Generator? generator) -> Tensor", dispatch(kAnyBackend, &generator_state));
    define("set_generator_state(Generator? generator, Tensor state) -> ()",
           dispatch(kAnyBackend, &set_generator_state));
    return library;
  }();
  static_cast<void>(kLibrary);
}

}  // namespace thunder::tracer
