#include "dispatch/thread_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace thunder::dispatch {
namespace {

// The dtype counts only where autocast is on.
ThreadState::Autocast autocast_of(c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return {};
  return {true, at::autocast::get_autocast_dtype(device)};
}

void restore_autocast(c10::DeviceType device, const ThreadState::Autocast& state) {
  at::autocast::set_autocast_enabled(device, state.enabled);
  if (state.enabled) at::autocast::set_autocast_dtype(device, state.dtype);
}

}  // namespace

bool is_autograd_observed() {
  constexpr std::uint64_t kOutermost = 0;
  return at::SavedTensorDefaultHooks::get_hooks().has_value() || torch::autograd::AnomalyMode::is_enabled() ||
         torch::autograd::ForwardADLevel::try_get_by_idx(kOutermost) != nullptr;
}

ThreadState ThreadState::now() {
  ThreadState state;
  state.grad_mode = c10::GradMode::is_enabled();
  state.inference_mode = c10::InferenceMode::is_enabled();
  state.autocast_cache = at::autocast::is_autocast_cache_enabled();
  state.deterministic = at::globalContext().deterministicAlgorithms();
  state.default_dtype = c10::get_default_dtype_as_scalartype();
  state.cpu = autocast_of(c10::DeviceType::CPU);
  state.cuda = autocast_of(c10::DeviceType::CUDA);
  state.function_modes = at::impl::PythonTorchFunctionTLS::stack_len();
  return state;
}

std::vector<ThreadState::Entry> ThreadState::entries() const {
  const auto flag = [](bool value) { return std::string(value ? "True" : "False"); };
  const auto type = [](c10::ScalarType dtype) { return std::string(c10::toString(dtype)); };
  const auto cast = [&](const Autocast& state) { return state.enabled ? type(state.dtype) : std::string("off"); };
  return {{"torch.is_grad_enabled()", flag(grad_mode)},
          {"torch.is_inference_mode_enabled()", flag(inference_mode)},
          {"torch.is_autocast_cache_enabled()", flag(autocast_cache)},
          {"torch.are_deterministic_algorithms_enabled()", flag(deterministic)},
          {"torch.get_default_dtype()", type(default_dtype)},
          {"autocast on the CPU", cast(cpu)},
          {"autocast on CUDA", cast(cuda)},
          {"number of torch function modes", std::to_string(function_modes)}};
}

RestoreThreadState::~RestoreThreadState() {
  c10::GradMode::set_enabled(state_.grad_mode);
  at::autocast::set_autocast_cache_enabled(state_.autocast_cache);
  restore_autocast(c10::DeviceType::CPU, state_.cpu);
  restore_autocast(c10::DeviceType::CUDA, state_.cuda);
}

}  // namespace thunder::dispatch
