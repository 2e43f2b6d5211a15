#include "tracer/parallel_operators.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node_pointer.h"
#include "base/rounding.h"
#include "operators/names.h"
#include "tracer/unused_parameters.h"

namespace thunder::tracer {
namespace {

using torch::autograd::variable_list;

at::Tensor call(const char* name, const char* overload, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  return stack.at(0).toTensor();
}

at::Tensor wait(const at::Tensor& started) { return call(operators::kWaitTensor, "", {started}); }

// --- data parallel: every process has the whole parameter

at::Tensor mark(const at::Tensor& self) { return at::alias(self); }

at::Tensor replicated(const at::Tensor& self, c10::string_view, std::int64_t, std::int64_t,
                      std::optional<at::ScalarType>) {
  return mark(self);
}

at::Tensor average_gradient(const at::Tensor& gradient, c10::string_view group, std::int64_t size, std::int64_t,
                            std::optional<at::ScalarType> dtype, std::optional<std::int64_t>) {
  const at::Tensor part = gradient.to(dtype.value_or(gradient.scalar_type())).contiguous().mul(1.0 / double(size));
  return wait(call(operators::kAllReduce, "", {part, "sum", std::string(group)})).to(gradient.scalar_type());
}

at::Tensor average_gradient_meta(const at::Tensor& gradient, c10::string_view, std::int64_t, std::int64_t,
                                 std::optional<at::ScalarType>, std::optional<std::int64_t>) {
  return at::empty_like(gradient, at::MemoryFormat::Contiguous);
}

// --- gradients that were kept back, without communication

at::Tensor with_gradient_for(const at::Tensor& self, const at::Tensor&) { return mark(self); }
at::Tensor adds_gradient_of(const at::Tensor& self, const at::Tensor&) { return mark(self); }

at::Tensor take_gradient(const at::Tensor& owner, const at::Tensor& gradient) {
  at::Tensor kept;
  std::swap(kept, owner.mutable_grad());
  return kept.defined() ? at::add(gradient, kept) : gradient.clone();
}

at::Tensor take_gradient_meta(const at::Tensor&, const at::Tensor& gradient) { return at::empty_like(gradient); }

// --- fully sharded: every process has some rows of the parameter

using OptionalDtype = std::optional<at::ScalarType>;

/// Rows of each shard but the last ones, which may have fewer or none.
std::int64_t rows_of_shard(at::IntArrayRef size, std::int64_t count) { return divide_up(size[0], count); }

/// A tensor without gaps, with zeros behind its rows so that it has so many.
at::Tensor padded(const at::Tensor& tensor, std::int64_t rows) {
  std::vector<std::int64_t> pads(2 * tensor.dim(), 0);
  pads.back() = rows - tensor.size(0);
  return at::constant_pad_nd(tensor.contiguous(), pads);
}

at::Tensor gather_shards(const at::Tensor& shard, at::IntArrayRef size, c10::string_view group, std::int64_t count,
                         c10::string_view, OptionalDtype dtype, OptionalDtype) {
  const at::Tensor sent = padded(shard.to(dtype.value_or(shard.scalar_type())), rows_of_shard(size, count));
  return wait(call(operators::kAllGather, "", {sent, count, std::string(group)})).narrow(0, 0, size[0]);
}

at::Tensor gather_shards_meta(const at::Tensor& shard, at::IntArrayRef size, c10::string_view, std::int64_t,
                              c10::string_view, OptionalDtype dtype, OptionalDtype) {
  return at::empty(size, shard.options().dtype(dtype.value_or(shard.scalar_type())));
}

at::Tensor scatter_gradient(const at::Tensor& gradient, std::int64_t rows, at::ScalarType dtype, c10::string_view group,
                            std::int64_t count, c10::string_view, OptionalDtype reduce_dtype) {
  const at::Tensor given = gradient.to(reduce_dtype.value_or(gradient.scalar_type()));
  const at::Tensor sent = padded(given, rows_of_shard(given.sizes(), count) * count).mul(1.0 / double(count));
  const at::Tensor shard = wait(call(operators::kReduceScatter, "", {sent, "sum", count, std::string(group)}));
  return shard.narrow(0, 0, rows).to(dtype);
}

at::Tensor scatter_gradient_meta(const at::Tensor& gradient, std::int64_t rows, at::ScalarType dtype, c10::string_view,
                                 std::int64_t, c10::string_view, OptionalDtype) {
  std::vector<std::int64_t> size = gradient.sizes().vec();
  size[0] = rows;
  return at::empty(size, gradient.options().dtype(dtype));
}

// --- tensor parallel: every process has a part of the features

at::Tensor sum_over_processes(const at::Tensor& self, c10::string_view group) {
  return wait(call(operators::kAllReduce, "", {self.contiguous(), "sum", std::string(group)}));
}

at::Tensor sum_over_processes_meta(const at::Tensor& self, c10::string_view) {
  return at::empty_like(self, at::MemoryFormat::Contiguous);
}

at::Tensor sums_gradient(const at::Tensor& self, c10::string_view) { return mark(self); }

/// The parts of all processes, one behind the other along a dimension.
at::Tensor gather_parts(const at::Tensor& self, std::int64_t dim, c10::string_view group, std::int64_t count,
                        std::int64_t) {
  const at::Tensor rows = self.movedim(dim, 0).contiguous();
  return wait(call(operators::kAllGather, "", {rows, count, std::string(group)})).movedim(0, dim).contiguous();
}

at::Tensor gather_parts_meta(const at::Tensor& self, std::int64_t dim, c10::string_view, std::int64_t count,
                             std::int64_t) {
  std::vector<std::int64_t> size = self.sizes().vec();
  size[at::maybe_wrap_dim(dim, self.dim())] *= count;
  return at::empty(size, self.options());
}

/// The sum of what processes have; each gets a part of it.
at::Tensor scatter_sum(const at::Tensor& self, std::int64_t dim, c10::string_view group, std::int64_t count,
                       std::int64_t) {
  const at::Tensor rows = self.movedim(dim, 0).contiguous();
  const at::Tensor part = call(operators::kReduceScatter, "", {rows, "sum", count, std::string(group)});
  return wait(part).movedim(0, dim).contiguous();
}

/// The part of this process.
at::Tensor take_part(const at::Tensor& self, std::int64_t dim, c10::string_view, std::int64_t count,
                     std::int64_t rank) {
  const std::int64_t length = self.size(dim) / count;
  return self.narrow(dim, rank * length, length).clone(at::MemoryFormat::Contiguous);
}

at::Tensor take_part_meta(const at::Tensor& self, std::int64_t dim, c10::string_view, std::int64_t count,
                          std::int64_t) {
  std::vector<std::int64_t> size = self.sizes().vec();
  size[at::maybe_wrap_dim(dim, self.dim())] /= count;
  return at::empty(size, self.options());
}

// --- derivatives

/// A node that gives gradients by a function of the only cotangent.
struct MarkBackward final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    if (!gradients.at(0).defined()) return variable_list(num_outputs());
    return give(gradients[0], owner.unpack());
  }
  void release_variables() override { owner.reset_data(); }

  std::function<variable_list(const at::Tensor& gradient, const at::Tensor& owner)> give;
  torch::autograd::SavedVariable owner;
};

/// `result` with a node that hands gradients on to `inputs`.
template <typename Give>
at::Tensor with_history(at::Tensor result, std::vector<at::Tensor> inputs, Give give, const at::Tensor& owner = {}) {
  bool needs_history = false;
  for (const at::Tensor& input : inputs) needs_history |= torch::autograd::compute_requires_grad(input);
  if (!needs_history) return result;
  const auto node = autograd::make_node<MarkBackward>();
  node->give = std::move(give);
  if (owner.defined()) node->owner = torch::autograd::SavedVariable(owner, /*is_output=*/false);
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) edges.push_back(torch::autograd::impl::gradient_edge(input));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(result, node);
  return result;
}

/// Calls the operator below autograd.
template <typename... Arguments>
at::Tensor below_autograd(const char* name, const char* overload, c10::DispatchKeySet keys,
                          const Arguments&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<at::Tensor(Arguments...)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.redispatch(keys & c10::after_ADInplaceOrView_keyset, arguments...);
}

at::Tensor differentiable_replicated(c10::DispatchKeySet keys, const at::Tensor& self, c10::string_view group,
                                     std::int64_t size, std::int64_t bucket_bytes,
                                     std::optional<at::ScalarType> dtype) {
  at::Tensor result =
      below_autograd<const at::Tensor&, c10::string_view, std::int64_t, std::int64_t, std::optional<at::ScalarType>>(
          "thunder::replicated", "", keys, self, group, size, bucket_bytes, dtype);
  return with_history(result, {self}, [=, name = std::string(group)](const at::Tensor& gradient, const at::Tensor&) {
    return variable_list{
        call("thunder::average_gradient", "", {gradient, name, size, bucket_bytes, dtype, c10::IValue()})};
  });
}

at::Tensor differentiable_with_gradient_for(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& owner) {
  at::Tensor result =
      below_autograd<const at::Tensor&, const at::Tensor&>("thunder::with_gradient_for", "", keys, self, owner);
  return with_history(result, {owner},
                      [](const at::Tensor& gradient, const at::Tensor&) { return variable_list{gradient}; });
}

at::Tensor differentiable_adds_gradient_of(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& owner) {
  at::Tensor result =
      below_autograd<const at::Tensor&, const at::Tensor&>("thunder::adds_gradient_of", "", keys, self, owner);
  return with_history(
      result, {self},
      [](const at::Tensor& gradient, const at::Tensor& of) {
        return variable_list{call("thunder::take_gradient", "", {of, gradient})};
      },
      owner);
}

template <bool kIsKept>
at::Tensor differentiable_gather_shards(c10::DispatchKeySet keys, const at::Tensor& shard, at::IntArrayRef size,
                                        c10::string_view group, std::int64_t count, c10::string_view bucket,
                                        OptionalDtype dtype, OptionalDtype reduce_dtype) {
  at::Tensor result = below_autograd<const at::Tensor&, at::IntArrayRef, c10::string_view, std::int64_t,
                                     c10::string_view, OptionalDtype, OptionalDtype>(
      "thunder::gather_shards", kIsKept ? "kept" : "", keys, shard, size, group, count, bucket, dtype, reduce_dtype);
  return with_history(result, {shard},
                      [=, rows = shard.size(0), type = shard.scalar_type(), name = std::string(group),
                       place = std::string(bucket)](const at::Tensor& gradient, const at::Tensor&) {
                        return variable_list{call("thunder::scatter_gradient", "",
                                                  {gradient, rows, type, name, count, place, reduce_dtype})};
                      });
}

at::Tensor differentiable_sum_over_processes(c10::DispatchKeySet keys, const at::Tensor& self, c10::string_view group) {
  at::Tensor result =
      below_autograd<const at::Tensor&, c10::string_view>("thunder::sum_over_processes", "", keys, self, group);
  return with_history(result, {self},
                      [](const at::Tensor& gradient, const at::Tensor&) { return variable_list{gradient}; });
}

at::Tensor differentiable_sums_gradient(c10::DispatchKeySet keys, const at::Tensor& self, c10::string_view group) {
  at::Tensor result =
      below_autograd<const at::Tensor&, c10::string_view>("thunder::sums_gradient", "", keys, self, group);
  return with_history(result, {self}, [name = std::string(group)](const at::Tensor& gradient, const at::Tensor&) {
    return variable_list{call("thunder::sum_over_processes", "", {gradient, name})};
  });
}

/// Operators of parts of activations, all with the same parameters.
struct PartsOperator {
  const char* name;
  const char* derivative;
  decltype(&take_part) kernel;
  decltype(&take_part) meta;
};
constexpr PartsOperator kPartsOperators[] = {
    // Each process gets the same gradient of a tensor that all compute the same with.
    {"gather_parts", "thunder::take_part", &gather_parts, &gather_parts_meta},
    {"take_part", "thunder::gather_parts", &take_part, &take_part_meta},
    // Gradients differ between processes where each computes something else with the tensor.
    {"gather_summing", "thunder::scatter_sum", &gather_parts, &gather_parts_meta},
    {"scatter_sum", "thunder::gather_parts", &scatter_sum, &take_part_meta},
};

template <std::size_t kIndex>
at::Tensor differentiable_parts(c10::DispatchKeySet keys, const at::Tensor& self, std::int64_t dim,
                                c10::string_view group, std::int64_t count, std::int64_t rank) {
  static const std::string name = std::string("thunder::") + kPartsOperators[kIndex].name;
  at::Tensor result = below_autograd<const at::Tensor&, std::int64_t, c10::string_view, std::int64_t, std::int64_t>(
      name.c_str(), "", keys, self, dim, group, count, rank);
  return with_history(result, {self}, [=, of = std::string(group)](const at::Tensor& gradient, const at::Tensor&) {
    return variable_list{call(kPartsOperators[kIndex].derivative, "", {gradient, dim, of, count, rank})};
  });
}

template <std::size_t... kIndices>
void define_parts(torch::Library& library, std::index_sequence<kIndices...> /*indices*/) {
  using c10::DispatchKey;
  using torch::dispatch;
  const auto define = [&](const PartsOperator& op, auto* differentiable) {
    const std::string schema = "(Tensor self, int dim, str group_name, int group_size, int rank) -> Tensor";
    library.def((op.name + schema).c_str(), dispatch(DispatchKey::CompositeExplicitAutograd, op.kernel));
    library.impl(op.name, dispatch(DispatchKey::Meta, op.meta));
    library.impl(op.name, dispatch(DispatchKey::Autograd, differentiable));
  };
  (define(kPartsOperators[kIndices], &differentiable_parts<kIndices>), ...);
}

void define_data_parallel(torch::Library& library) {
  using c10::DispatchKey;
  using torch::dispatch;
  constexpr auto kAnyBackend = DispatchKey::CompositeExplicitAutograd;
  library.def(
      "replicated(Tensor(a) self, str group_name, int group_size, int bucket_bytes, ScalarType? dtype=None) -> "
      "Tensor(a)",
      dispatch(kAnyBackend, &replicated));
  library.impl("replicated", dispatch(DispatchKey::Autograd, &differentiable_replicated));
  library.def(
      "average_gradient(Tensor gradient, str group_name, int group_size, int bucket_bytes, ScalarType? dtype=None, "
      "int? order=None) -> Tensor",
      dispatch(kAnyBackend, &average_gradient));
  library.impl("average_gradient", dispatch(DispatchKey::Meta, &average_gradient_meta));
  library.impl("average_gradient", dispatch(DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
  library.def("with_gradient_for(Tensor(a) self, Tensor owner) -> Tensor(a)",
              dispatch(kAnyBackend, &with_gradient_for));
  library.impl("with_gradient_for", dispatch(DispatchKey::Autograd, &differentiable_with_gradient_for));
  library.def("adds_gradient_of(Tensor(a) self, Tensor owner) -> Tensor(a)", dispatch(kAnyBackend, &adds_gradient_of));
  library.impl("adds_gradient_of", dispatch(DispatchKey::Autograd, &differentiable_adds_gradient_of));
  library.def("take_gradient(Tensor owner, Tensor gradient) -> Tensor", dispatch(kAnyBackend, &take_gradient));
  library.impl("take_gradient", dispatch(DispatchKey::Meta, &take_gradient_meta));
}

void define_sharded(torch::Library& library) {
  using c10::DispatchKey;
  using torch::dispatch;
  constexpr auto kAnyBackend = DispatchKey::CompositeExplicitAutograd;
  for (const bool is_kept : {false, true}) {
    const std::string name = is_kept ? "gather_shards.kept" : "gather_shards";
    library.def(
        (name + "(Tensor shard, int[] size, str group_name, int group_size, str bucket, ScalarType? dtype=None, "
                "ScalarType? reduce_dtype=None) -> Tensor")
            .c_str(),
        dispatch(kAnyBackend, &gather_shards));
    library.impl(name.c_str(), dispatch(DispatchKey::Meta, &gather_shards_meta));
  }
  library.impl("gather_shards", dispatch(DispatchKey::Autograd, &differentiable_gather_shards<false>));
  library.impl("gather_shards.kept", dispatch(DispatchKey::Autograd, &differentiable_gather_shards<true>));
  library.def(
      "scatter_gradient(Tensor gradient, int rows, ScalarType dtype, str group_name, int group_size, str bucket, "
      "ScalarType? reduce_dtype=None) -> Tensor",
      dispatch(kAnyBackend, &scatter_gradient));
  library.impl("scatter_gradient", dispatch(DispatchKey::Meta, &scatter_gradient_meta));
  library.impl("scatter_gradient", dispatch(DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
}

void define_tensor_parallel(torch::Library& library) {
  using c10::DispatchKey;
  using torch::dispatch;
  constexpr auto kAnyBackend = DispatchKey::CompositeExplicitAutograd;
  library.def("sum_over_processes(Tensor self, str group_name) -> Tensor", dispatch(kAnyBackend, &sum_over_processes));
  library.impl("sum_over_processes", dispatch(DispatchKey::Meta, &sum_over_processes_meta));
  library.impl("sum_over_processes", dispatch(DispatchKey::Autograd, &differentiable_sum_over_processes));
  library.def("sums_gradient(Tensor(a) self, str group_name) -> Tensor(a)", dispatch(kAnyBackend, &sums_gradient));
  library.impl("sums_gradient", dispatch(DispatchKey::Autograd, &differentiable_sums_gradient));
  define_parts(library, std::make_index_sequence<std::size(kPartsOperators)>());
}

}  // namespace

void register_parallel_operators() {
  static const torch::Library* const kLibrary = [] {
    auto* library = new torch::Library(torch::Library::FRAGMENT, "thunder", std::nullopt, __FILE__, __LINE__);
    define_data_parallel(*library);
    define_sharded(*library);
    define_tensor_parallel(*library);
    define_unused_parameters(*library);
    return library;
  }();
  static_cast<void>(kLibrary);
}

}  // namespace thunder::tracer
