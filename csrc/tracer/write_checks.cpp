#include "tracer/write_checks.h"

#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

#include "bridge/convert.h"
#include "tracer/evaluate.h"
#include "tracer/functional_form.h"
#include "tracer/map_tensors.h"
#include "tracer/memory_overlap.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// Tensors like those of a call, over memory that these share in the same way, without a place in the trace.
class UnrecordedTensors {
 public:
  at::Tensor operator()(const at::Tensor& tensor) {
    if (!tensor.defined() || trace_impl(tensor) == nullptr) return tensor;
    at::Tensor& known = tensors_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    const ir::TensorType type = bridge::type_of(tensor);
    c10::Storage& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    known = make_trace_tensor(type, std::make_shared<TraceState>(), storage);
    if (!storage) storage = known.storage();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) known.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (type.requires_grad) known.set_requires_grad(true);
    return known;
  }

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

/// The program is not warned of calls that only look for errors.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// Reads each element before it is written, and no other one.
bool goes_element_by_element(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::pointwise) || has_fact(op, Fact::kCopies)) return true;
  const auto functional = functional_counterpart(op);
  return functional && functional->hasTag(at::Tag::pointwise);
}

/// The tensors of a call, without the one that is `target` itself.
std::vector<at::Tensor> others_than(const at::Tensor& target, std::vector<at::Tensor> tensors) {
  const auto self = std::ranges::find_if(tensors, [&](const at::Tensor& tensor) { return tensor.is_same(target); });
  if (self != tensors.end()) tensors.erase(self);
  return tensors;
}

bool is_out_variant(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.kwarg_only() && is_written_to(argument);
  });
}

/// Whether a call is what its operator does in place: `addmm(a, x, y, out=a)` is `a.addmm_(x, y)`.
bool is_as_in_place(const c10::OperatorHandle& op, std::span<const IValue> arguments, const at::Tensor& target) {
  if (!is_out_variant(op) || !arguments.front().isTensor() || !arguments.front().toTensor().is_same(target)) {
    return false;
  }
  std::string overload = op.operator_name().overload_name;
  overload.resize(overload.size() - std::min(overload.size(), overload.ends_with("_out") ? 4UL : 3UL));
  return c10::Dispatcher::singleton().findSchema({op.operator_name().name + "_", overload}).has_value();
}

bool follows_from_order(const c10::OperatorHandle& op, std::span<const IValue> arguments, const at::Tensor& target) {
  if (overlaps_itself(target)) return true;
  const bool may_read_target = goes_element_by_element(op);
  std::vector<at::Tensor> others = others_than(target, tensors_of(arguments));
  if (is_as_in_place(op, arguments, target)) others = others_than(target, std::move(others));
  return std::ranges::any_of(others, [&](const at::Tensor& other) {
    return share_elements(target, other) && !(may_read_target && show_same_elements(target, other));
  });
}

}  // namespace

void raise_as_eager(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (is_custom(op)) return;
  const EvaluateOnly nothing_recorded;
  NoWarnings handler;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&handler);
  // The recorder checks autograd's rules for writes in place itself; here the rules for `out=` are checked.
  const c10::AutoGradMode gradients(c10::GradMode::is_enabled() && is_out_variant(op));
  UnrecordedTensors unrecorded;
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) {
    stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) { return unrecorded(tensor); }));
  }
  try {
    op.callBoxed(stack);
  } catch (const DataNeeded&) {
    return;
  }
}

void require_separate_elements(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                               std::span<const at::Tensor> targets) {
  const auto is_unclear = [&](const at::Tensor& target) { return follows_from_order(op, arguments, target); };
  if (std::ranges::none_of(targets, is_unclear)) return;
  raise_as_eager(op, arguments);
  refuse(op, "it writes to memory that several elements lie in, or that it reads; write to a clone");
}

void require_fitting_result(const c10::OperatorHandle& op, std::span<const IValue> arguments, const at::Tensor& target,
                            const at::Tensor& result, bool is_out) {
  const bool has_shape = result.sizes().equals(target.sizes());
  const bool has_dtype = result.scalar_type() == target.scalar_type();
  const auto is_target = [&](const at::Tensor& other) { return other.is_same(target); };
  const bool may_resize = is_out && std::ranges::none_of(others_than(target, tensors_of(arguments)), is_target);
  if (has_dtype && (has_shape || may_resize)) return;
  raise_as_eager(op, arguments);
  if (!has_shape && !may_resize) refuse(op, "expected a result of the target's shape");
  if (has_dtype || is_custom(op)) return;
  const bool is_truth = result.scalar_type() == c10::kBool;  // a comparison, which no cast loses
  const bool is_converted = !is_out && (is_truth || goes_element_by_element(op));
  if (is_converted && c10::canCast(result.scalar_type(), target.scalar_type())) return;
  refuse(op, "expected a target of the result's dtype, " + std::string(c10::toString(result.scalar_type())) +
                 ", got one of " + c10::toString(target.scalar_type()) + "; use the variant that returns its result");
}

bool is_closed_outside(const at::Tensor& tensor) {
  if (!tensor.is_view()) return false;
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  const at::Tensor base(tensor._base());
  // A view that was made a leaf has views with a history, though the base requires no grad.
  const bool has_gradients = base.requires_grad() || (tensor.requires_grad() && !tensor.is_leaf());
  return meta->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT || (base.is_leaf() && has_gradients);
}

}  // namespace thunder::tracer
