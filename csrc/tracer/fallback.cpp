#include "tracer/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tracer/autocast.h"
#include "tracer/evaluate.h"
#include "tracer/functional_form.h"
#include "tracer/layers_at_sizes.h"
#include "tracer/library.h"
#include "tracer/map_tensors.h"
#include "tracer/numbers_as_floats.h"
#include "tracer/operators.h"
#include "tracer/parallel_operators.h"
#include "tracer/probe.h"
#include "tracer/recorder.h"
#include "tracer/size_probes.h"
#include "tracer/size_shadows.h"
#include "tracer/sizes_as_ints.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::DispatchKey;

bool is_excluded(DispatchKey key) { return c10::impl::tls_local_dispatch_key_set().excluded_.has(key); }

/// torch.tensor and its kin write data into a fresh tensor, with these keys excluded: nothing to record there.
bool builds_constant() {
  return is_excluded(DispatchKey::Python) && is_excluded(DispatchKey::PythonTLSSnapshot) &&
         is_excluded(DispatchKey::ADInplaceOrView);
}

/// Ranges for the profiler: they compute nothing, and their handles are objects that a trace cannot hold.
bool only_profiles(const c10::OperatorHandle& op) { return op.operator_name().name.starts_with("profiler::"); }

/// A functorch layer is active, or an argument has come out of one.
constexpr c10::DispatchKeySet functorch_keys{DispatchKey::FuncTorchDynamicLayerFrontMode,
                                             DispatchKey::FuncTorchDynamicLayerBackMode,
                                             DispatchKey::FuncTorchGradWrapper, DispatchKey::FuncTorchBatched};

/// Makes tensors of kinds that PyTorch tells by keys and fields of their own: a trace tensor has none of these.
[[noreturn]] void refuse_special_tensors(const c10::OperatorHandle& op) {
  throw UserError(ErrorKind::kNotImplemented, "thunder.jit: expected torch.func.jvp or torch.func.vmap, got " +
                                                  op.operator_name().name +
                                                  " (torch.autograd.forward_ad, torch._vmap_internals)");
}

/// Operators that ask about the tensor itself, and not about what it holds: a trace tensor's answer is another one.
[[noreturn]] void refuse_facts(const c10::OperatorHandle& op) {
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: " + op.operator_name().name + " of a tensor is not known inside; call it outside");
}

/// Operators that are recorded follow the settings of the time when they run, which are those around the call.
void refuse_changed_settings(const c10::OperatorHandle& op, const Recorder& recorder) {
  const NumberSettings now = NumberSettings::now();
  if (recorder.settings == now) return;
  const bool is_dtype = recorder.settings.default_dtype != now.default_dtype;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: " + op.operator_name().name + " is called while " +
                      (is_dtype ? "torch.get_default_dtype()" : "torch.are_deterministic_algorithms_enabled()") +
                      " is changed inside; change it around the call");
}

/// How many examples of batches, of all levels, a tensor stands for.
std::int64_t count_examples(const at::Tensor& tensor) {
  const auto* batched = tensor.defined() ? at::functorch::maybeGetBatchedImpl(tensor) : nullptr;
  return batched == nullptr ? 1 : batched->value().size(batched->bdim()) * count_examples(batched->value());
}

/// Without a batching rule, PyTorch calls an operator for each example: a trace that is too long to be compiled. What
/// makes dual tensors does so in the level of `jvp`, and never comes to that of `vmap`.
void refuse_long_loops(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (operators::has_fact(*operator_for(op), Fact::kWrapsTensors)) return;
  if (op.hasKernelForDispatchKey(DispatchKey::FuncTorchBatched) ||
      op.hasKernelForDispatchKey(DispatchKey::FuncTorchBatchedDecomposition) || is_composite(op)) {
    return;
  }
  constexpr std::int64_t kMostExamples = 128;
  for (const at::Tensor& tensor : tensors_of(std::span(stack).last(op.schema().arguments().size()))) {
    const std::int64_t count = count_examples(tensor);
    if (count <= kMostExamples) continue;
    throw UserError(ErrorKind::kNotImplemented, op.operator_name().name + " has no batching rule: expected at most " +
                                                    std::to_string(kMostExamples) + " examples under vmap, got " +
                                                    std::to_string(count));
  }
}

/// PyTorch's bindings give Python the type of its own exceptions only.
[[noreturn]] void throw_as_pytorch(const UserError& error) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  switch (error.kind()) {
    case ErrorKind::kNotImplemented:
      throw c10::NotImplementedError(here, error.what());
    case ErrorKind::kType:
      throw c10::TypeError(here, error.what());
    case ErrorKind::kValue:
      throw c10::ValueError(here, error.what());
    case ErrorKind::kRuntime:
      break;
  }
  throw;
}

void dispatch_top(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recorder* const recorder = recorder_on_top();
  if (recorder == nullptr || builds_constant() || only_profiles(op)) {
    const c10::impl::ExcludeDispatchKeyGuard no_recording(DispatchKey::TESTING_ONLY_GenericMode);
    op.callBoxed(*stack);
  } else if (keys.has_any(functorch_keys)) {
    refuse_long_loops(op, *stack);
    // functorch's layers first; the operations that they come down to are called again from below all of them.
    op.redispatchBoxed(
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, DispatchKey::TESTING_ONLY_GenericMode), stack);
  } else if (const auto autocast = autocast_key(op, keys)) {
    op.callBoxedForDispatchKey(*autocast, *stack);
  } else {
    const operators::FactSet facts = operators::facts_of(*operator_for(op));
    if (facts.has(Fact::kWrapsTensors)) refuse_special_tensors(op);
    if (facts.has(Fact::kAsksAboutTensor)) refuse_facts(op);
    refuse_changed_settings(op, *recorder);
    if (facts.has(Fact::kCastsInside)) require_no_casts_inside(op);
    recorder->call(op, *stack, Level::kTop);
  }
}

/// Names the type of tensors that eager does not have there.
bool is_about_meta_tensors(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  return text.find("Meta") != std::string_view::npos || text.find("meta") != std::string_view::npos;
}

/// There eager has kernels of its own, which let other arguments pass.
bool is_on_meta_device(std::span<const c10::IValue> arguments) {
  const auto is_meta = [](const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_meta(); };
  return std::ranges::any_of(tensors_of(arguments), is_meta) ||
         std::ranges::any_of(arguments,
                             [](const c10::IValue& value) { return value.isDevice() && value.toDevice().is_meta(); });
}

/// Whether a program is followed at other sizes than its own: nobody sees an error there, and the sizes may be far too
/// large for a kernel.
bool is_at_other_sizes() {
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  return shadows != nullptr && recorder_on_top() != nullptr && !shadows->is_of_program(*recorder_on_top());
}

/// Raises what eager raises where a meta kernel has its own words for it. Where a kernel raises nothing, the program
/// must not see the error.
void raise_in_words_of_eager(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  if (is_at_other_sizes()) return;
  if (is_custom(op)) return note_refusal(op.operator_name().name + " raised an error");
  try {
    raise_as_kernel(op, arguments);
  } catch (const std::exception&) {
    if (forget_python_error != nullptr) forget_python_error();
    throw;
  }
  note_refusal(op.operator_name().name + " raised an error that eager does not");
}

/// Random numbers that an operator draws before it raises are nowhere in a trace.
void refuse_lost_draws(const c10::OperatorHandle& op) {
  if (operator_for(op)->random) note_refusal(op.operator_name().name + " raised an error, and may have drawn before");
}

void record_at_traced_sizes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (look_for_autocast(op, keys, *stack)) return;
  const auto given = std::span(*stack).last(op.schema().arguments().size());
  const std::vector<c10::IValue> arguments(given.begin(), given.end());
  try {
    // A write to an array that the program puts back before its end is seen here.
    const Recorder* const recorder = recorder_on_top();
    if (recorder != nullptr && !is_at_other_sizes()) recorder->arrays.require_unwritten();
    dispatch_top(op, keys, stack);
  } catch (const UserError& error) {
    note_refusal(error.what());
    throw_as_pytorch(error);
  } catch (const c10::Error& error) {
    refuse_lost_draws(op);
    if (is_about_meta_tensors(error) || is_on_meta_device(arguments)) raise_in_words_of_eager(op, arguments);
    throw;
  } catch (const std::exception&) {
    refuse_lost_draws(op);
    raise_in_words_of_eager(op, arguments);
    throw;
  }
}

void record_top(const c10::OperatorHandle& called, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::OperatorHandle op = NumbersAsFloats::put_into(called, *stack).value_or(called);
  auto* const shadows = static_cast<SizeShadows*>(TraceSession::current().size_reads);
  const bool is_watched = shadows != nullptr && shadows->is_outside() && recorder_on_top() != nullptr;
  if (!is_watched || builds_constant() || only_profiles(op)) return record_at_traced_sizes(op, keys, stack);
  // The operations that it comes down to are followed one by one.
  if (keys.has_any(functorch_keys) && is_decomposed_above_layers(op)) return record_at_traced_sizes(op, keys, stack);
  const auto given = std::span(*stack).last(op.schema().arguments().size());
  std::vector<c10::IValue> arguments(given.begin(), given.end());
  SizesAsInts::put_into(op, arguments);
  // Parts of a program have one size.
  const bool can_follow = shadows->is_of_program(*recorder_on_top()) && can_follow_layers();
  if (!can_follow) shadows->pin_all();
  if (are_numbers_saved()) {
    for (const c10::IValue& argument : arguments) {
      for (const ir::Dim& size : sizes_in(argument)) shadows->pin_symbols_of(size);
    }
  }
  const std::vector<c10::IValue> traced = shadows->at_traced_sizes(op, arguments);
  std::ranges::copy(traced, stack->end() - static_cast<std::ptrdiff_t>(traced.size()));
  try {
    const SizeShadows::Inside inside(*shadows);
    record_at_traced_sizes(op, keys, stack);
  } catch (const std::exception&) {
    shadows->note_failure(arguments);
    throw;
  }
  if (can_follow) shadows->follow(op, arguments, std::span(*stack).last(op.schema().returns().size()));
}

/// Threads that the program starts record nothing.
void require_thread_of_trace() {
  const bool is_bottom_on = c10::impl::tls_local_dispatch_key_set().included_.has(DispatchKey::Fake);
  if (recorder_on_top() != nullptr || is_bottom_on) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: a tensor of the function is used on another thread, or after the function was traced");
}

void record_bottom(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if (is_composite(op)) {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
  } else if (Recorder* const recorder = recorder_at_bottom(); recorder != nullptr) {
    recorder->call(op, *stack, Level::kBottom);
  } else {
    require_living(tensors_of(std::span<const c10::IValue>(*stack).last(op.schema().arguments().size())));
    require_thread_of_trace();
    evaluate_leaf(op, *stack);
  }
}

}  // namespace

void init_tracer() {
  register_library();
  register_parallel_operators();
  static const auto* const kLibraries = [] {
    auto* libraries = new std::vector<torch::Library>;
    libraries->emplace_back(torch::Library::IMPL, "_", DispatchKey::TESTING_ONLY_GenericMode, __FILE__, __LINE__);
    libraries->back().fallback(torch::CppFunction::makeFromBoxedFunction<&record_top>());
    libraries->emplace_back(torch::Library::IMPL, "_", DispatchKey::Fake, __FILE__, __LINE__);
    libraries->back().fallback(torch::CppFunction::makeFromBoxedFunction<&record_bottom>());
    return libraries;
  }();
  static_cast<void>(kLibraries);
}

}  // namespace thunder::tracer
