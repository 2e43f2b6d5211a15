#include "tracer/unused_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/node_pointer.h"

namespace thunder::tracer {
namespace {

using torch::autograd::variable_list;
using OptionalDtype = std::optional<at::ScalarType>;

torch::jit::Stack call(const char* name, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack;
}

std::vector<at::Tensor> replicated_together(at::TensorList parameters, c10::string_view, std::int64_t, std::int64_t,
                                            OptionalDtype, bool) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& each : parameters) results.push_back(each.clone());
  return results;
}

std::vector<at::Tensor> replicated_together_meta(at::TensorList parameters, c10::string_view, std::int64_t,
                                                 std::int64_t, OptionalDtype, bool) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& each : parameters)
    results.push_back(at::empty_strided(each.sizes(), each.strides(), each.options()));
  return results;
}

at::Tensor gradient_if_used(const at::Tensor& gradient, const at::Tensor& used, std::int64_t place) {
  return used[place].item<double>() > 0 ? at::alias(gradient) : at::Tensor();
}

at::Tensor gradient_if_used_meta(const at::Tensor& gradient, const at::Tensor&, std::int64_t) {
  return at::alias(gradient);
}

at::TensorOptions options_of_flags(const at::Tensor& parameter) { return parameter.options().dtype(at::kFloat); }

/// The gradient that was kept back, or zeros, and whether there was one.
std::tuple<at::Tensor, at::Tensor> take_kept_gradient(const at::Tensor& owner) {
  at::Tensor kept;
  std::swap(kept, owner.mutable_grad());
  const at::Tensor flag = at::full({1}, kept.defined() ? 1.0 : 0.0, options_of_flags(owner));
  return {kept.defined() ? std::move(kept) : at::zeros_like(owner, owner.options(), at::MemoryFormat::Contiguous),
          flag};
}

std::tuple<at::Tensor, at::Tensor> take_kept_gradient_meta(const at::Tensor& owner) {
  return {at::empty_like(owner, at::MemoryFormat::Contiguous), at::empty({1}, options_of_flags(owner))};
}

/// Sends a gradient for each parameter, used or not, in one order, and which ones were used: so each process sends the
/// same, whichever branch it took.
struct TogetherBackward final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    std::vector<at::Tensor> flags;
    variable_list averages;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      auto [gradient, flag] = own_gradient(gradients[i], i);
      flags.push_back(std::move(flag));
      averages.push_back(average(gradient, static_cast<std::int64_t>(i)));
    }
    const at::Tensor used = average(at::cat(flags), static_cast<std::int64_t>(gradients.size()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) continue;
      const auto place = static_cast<std::int64_t>(i);
      averages[i] = call("thunder::gradient_if_used", {averages[i], used, place}).at(0).toTensor();
    }
    return averages;
  }

  /// Returns the gradient that this process adds, and whether it is the gradient of something.
  std::pair<at::Tensor, at::Tensor> own_gradient(const at::Tensor& gradient, std::size_t i) {
    const Parameter& parameter = parameters[i];
    const auto flag = [&](bool used) { return used ? at::ones({1}, flag_options) : at::zeros({1}, flag_options); };
    if (owners.empty()) {
      return {gradient.defined() ? gradient : at::zeros(parameter.sizes, parameter.options), flag(gradient.defined())};
    }
    const at::Tensor owner = owners[i].unpack();
    if (gradient.defined()) return {call("thunder::take_gradient", {owner, gradient}).at(0).toTensor(), flag(true)};
    torch::jit::Stack taken = call("thunder::take_kept_gradient", {owner});
    return {taken.at(0).toTensor(), taken.at(1).toTensor()};
  }

  [[nodiscard]] at::Tensor average(const at::Tensor& gradient, std::int64_t order) const {
    return call("thunder::average_gradient", {gradient, group, size, bucket_bytes, dtype, order}).at(0).toTensor();
  }

  void release_variables() override {
    for (torch::autograd::SavedVariable& owner : owners) owner.reset_data();
  }

  struct Parameter {
    std::vector<std::int64_t> sizes;
    at::TensorOptions options;
  };
  std::vector<Parameter> parameters;
  std::vector<torch::autograd::SavedVariable> owners;  ///< empty: nothing was kept back
  at::TensorOptions flag_options;
  std::string group;
  std::int64_t size = 0;
  std::int64_t bucket_bytes = 0;
  OptionalDtype dtype;
};

std::vector<at::Tensor> differentiable_together(c10::DispatchKeySet keys, at::TensorList parameters,
                                                c10::string_view group, std::int64_t size, std::int64_t bucket_bytes,
                                                OptionalDtype dtype, bool adds_kept) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("thunder::replicated_together", "")
                      .typed<std::vector<at::Tensor>(at::TensorList, c10::string_view, std::int64_t, std::int64_t,
                                                     OptionalDtype, bool)>();
  std::vector<at::Tensor> results;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    results = op.redispatch(keys & c10::after_ADInplaceOrView_keyset, parameters, group, size, bucket_bytes, dtype,
                            adds_kept);
  }
  if (!torch::autograd::compute_requires_grad(parameters)) return results;
  const auto node = autograd::make_node<TogetherBackward>();
  torch::autograd::edge_list edges;
  for (const at::Tensor& each : parameters) {
    edges.push_back(torch::autograd::impl::gradient_edge(each));
    node->parameters.push_back({each.sizes().vec(), each.options()});
    if (adds_kept) node->owners.emplace_back(each, /*is_output=*/false);
  }
  node->flag_options = options_of_flags(parameters[0]);
  node->group = std::string(group);
  node->size = size;
  node->bucket_bytes = bucket_bytes;
  node->dtype = dtype;
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(results, node);
  return results;
}

}  // namespace

void define_unused_parameters(torch::Library& library) {
  using c10::DispatchKey;
  using torch::dispatch;
  constexpr auto kAnyBackend = DispatchKey::CompositeExplicitAutograd;
  library.def(
      "replicated_together(Tensor[] parameters, str group_name, int group_size, int bucket_bytes, ScalarType? dtype, "
      "bool adds_kept) -> Tensor[]",
      dispatch(kAnyBackend, &replicated_together));
  library.impl("replicated_together", dispatch(DispatchKey::Meta, &replicated_together_meta));
  library.impl("replicated_together", dispatch(DispatchKey::Autograd, &differentiable_together));
  library.def("gradient_if_used(Tensor(a) gradient, Tensor used, int place) -> Tensor(a)",
              dispatch(kAnyBackend, &gradient_if_used));
  library.impl("gradient_if_used", dispatch(DispatchKey::Meta, &gradient_if_used_meta));
  library.impl("gradient_if_used", dispatch(DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
  library.def("take_kept_gradient(Tensor owner) -> (Tensor, Tensor)", dispatch(kAnyBackend, &take_kept_gradient));
  library.impl("take_kept_gradient", dispatch(DispatchKey::Meta, &take_kept_gradient_meta));
}

}  // namespace thunder::tracer
