#include "dispatch/call/thread_state.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>

#include "interpreter/python/python_ref.h"

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

using FunctionModes = at::impl::PythonTorchFunctionTLS;

PyObject* function_mode(std::int64_t index) { return FunctionModes::get_stack_at(index)->ptr(getPyInterpreter()); }

/// Whether a function mode is what `with torch.device(…)` enters.
bool is_device_context(PyObject* mode) {
  static const py::Ref type = [] {
    const py::Ref module = py::Ref::steal(py::import_module("torch.utils._device"));
    py::Ref found = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "DeviceContext") : nullptr);
    PyErr_Clear();
    return found;
  }();
  return reinterpret_cast<PyObject*>(Py_TYPE(mode)) == type.get();
}

/// The device of a `DeviceContext`; nullopt for any other mode.
std::optional<c10::Device> device_of_mode(PyObject* mode) {
  if (!is_device_context(mode)) return std::nullopt;
  const py::Ref device = py::Ref::steal(PyObject_GetAttrString(mode, "device"));
  if (!device) PyErr_Clear();
  if (!device || !THPDevice_Check(device.get())) return std::nullopt;
  return reinterpret_cast<THPDevice*>(device.get())->device;
}

/// Other than that of tensors, which hands the call on.
bool has_own_torch_function(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  // Asked in the middle of a trace, where importing would be a part of the program.
  static PyObject* const disabled = PyObject_GetAttrString(PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C"),
                                                           "_disabled_torch_function_impl");
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 ||
      FunctionModes::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED) {
    return false;
  }
  const PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  const PyObject* of_tensors = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(THPVariableClass), name);
  return found != nullptr && found != disabled && found != of_tensors;
}

/// Changes whenever an attribute of the class or of its bases does. CPython numbers a class when it is next looked
/// into.
std::uint32_t version_of_tensor_class() {
  static PyObject* const name = PyUnicode_InternFromString("__class__");
  auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (type->tp_version_tag == 0) _PyType_Lookup(type, name);
  return type->tp_version_tag;
}

bool stack_has_function_mode() {
  for (std::int64_t i = 0; i < FunctionModes::stack_len(); ++i) {
    if (!device_of_mode(function_mode(i))) return true;
  }
  return false;
}

bool has_unknown_function_modes() {
  return FunctionModes::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED ||
         stack_has_function_mode();
}

}  // namespace

bool has_function_mode() {
  return FunctionModes::get_disabled_state() != at::impl::TorchFunctionDisabledState::ALL_DISABLED &&
         stack_has_function_mode();
}

bool is_told_of_operations(PyObject* object) { return has_function_mode() || has_own_torch_function(object); }

bool has_unknown_layers() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const bool inference = c10::InferenceMode::is_enabled();
  const c10::DispatchKeySet included =
      inference ? c10::default_included_set.remove(c10::DispatchKey::ADInplaceOrView) : c10::default_included_set;
  const c10::DispatchKeySet excluded =
      inference ? c10::default_excluded_set | c10::autograd_dispatch_keyset : c10::default_excluded_set;
  const auto differ = [](c10::DispatchKeySet left, c10::DispatchKeySet right) {
    return !((left | right) - (left & right) - c10::autocast_dispatch_keyset).empty();
  };
  // functorch leaves its keys excluded after its first use; inside of a transform they are included.
  const c10::DispatchKeySet functorch{c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                      c10::DispatchKey::FuncTorchDynamicLayerBackMode};
  return differ(keys.included_, included) || differ(keys.excluded_ - functorch, excluded) ||
         has_unknown_function_modes();
}

bool is_fx_tracing() {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.fx._symbolic_trace");
  if (module == nullptr || !PyModule_Check(module)) return false;
  return PyDict_GetItemString(PyModule_GetDict(module), "_is_fx_tracing_flag") == Py_True;
}

bool is_autograd_observed() {
  constexpr std::uint64_t kOutermost = 0;
  return at::SavedTensorDefaultHooks::get_hooks().has_value() || !at::SavedTensorDefaultHooks::is_enabled() ||
         torch::autograd::AnomalyMode::is_enabled() ||
         torch::autograd::ForwardADLevel::try_get_by_idx(kOutermost) != nullptr;
}

ThreadState ThreadState::now() {
  ThreadState state;
  state.grad_mode = c10::GradMode::is_enabled();
  state.inference_mode = c10::InferenceMode::is_enabled();
  state.autocast_cache = at::autocast::is_autocast_cache_enabled();
  state.deterministic = at::globalContext().deterministicAlgorithms();
  state.default_dtype = c10::get_default_dtype_as_scalartype();
  state.tensor_class = version_of_tensor_class();
  state.cpu = autocast_of(c10::DeviceType::CPU);
  state.cuda = autocast_of(c10::DeviceType::CUDA);
  for (std::int64_t i = 0; i < FunctionModes::stack_len(); ++i) {
    if (const auto device = device_of_mode(function_mode(i))) state.default_devices.push_back(*device);
  }
  return state;
}

std::vector<ThreadState::Entry> ThreadState::entries() const {
  const auto flag = [](bool value) { return std::string(value ? "True" : "False"); };
  const auto type = [](c10::ScalarType dtype) { return std::string(c10::toString(dtype)); };
  const auto cast = [&](const Autocast& state) { return state.enabled ? type(state.dtype) : std::string("off"); };
  std::string devices;
  for (const c10::Device& device : default_devices) devices += (devices.empty() ? "" : ", ") + device.str();
  return {{"torch.is_grad_enabled()", flag(grad_mode)},
          {"torch.is_inference_mode_enabled()", flag(inference_mode)},
          {"torch.is_autocast_cache_enabled()", flag(autocast_cache)},
          {"torch.are_deterministic_algorithms_enabled()", flag(deterministic)},
          {"torch.get_default_dtype()", type(default_dtype)},
          {"the methods of torch.Tensor", std::to_string(tensor_class)},
          {"autocast on the CPU", cast(cpu)},
          {"autocast on CUDA", cast(cuda)},
          {"devices of torch.device contexts", devices.empty() ? "none" : devices}};
}

void set_thread_state(const ThreadState& state) {
  c10::GradMode::set_enabled(state.grad_mode);
  at::autocast::set_autocast_cache_enabled(state.autocast_cache);
  restore_autocast(c10::DeviceType::CPU, state.cpu);
  restore_autocast(c10::DeviceType::CUDA, state.cuda);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(state.default_dtype));
  if (at::globalContext().deterministicAlgorithms() != state.deterministic) {
    at::globalContext().setDeterministicAlgorithms(state.deterministic,
                                                   at::globalContext().deterministicAlgorithmsWarnOnly());
  }
}

RestoreThreadState::RestoreThreadState() : state_(ThreadState::now()) {
  for (std::int64_t i = 0; i < FunctionModes::stack_len(); ++i) modes_.push_back(FunctionModes::get_stack_at(i));
}

RestoreThreadState::~RestoreThreadState() {
  set_thread_state(state_);
  while (FunctionModes::stack_len() > 0) FunctionModes::pop_stack();
  for (const auto& mode : modes_) FunctionModes::push_onto_stack(mode);
}

}  // namespace thunder::dispatch
