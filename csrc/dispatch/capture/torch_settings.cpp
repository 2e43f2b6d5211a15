#include "dispatch/capture/torch_settings.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "dispatch/capture/substitutes.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/provenance/provenance_constant.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

using interpreter::NativeCall;

/// The first arguments of a setting's functions, before the value that the setter gets.
enum class SettingKey : std::uint8_t {
  kNone,
  kDevice,   ///< the name of a device
  kBackend,  ///< the names of a back end and of a kind of operations
};

/// Functions of `torch._C`: one that gives a setting, and the one that takes what it gives.
struct Setting {
  const char* getter;
  const char* setter;
  SettingKey key = SettingKey::kNone;
  bool by_kernels = false;  ///< operations set it, too
};
constexpr const char* kWarnOnly = "_get_deterministic_algorithms_warn_only";  // one of two that its setter takes
constexpr Setting kSettings[] = {
    {"get_num_threads", "set_num_threads"},
    {"get_autocast_dtype", "set_autocast_dtype", SettingKey::kDevice},
    {"is_autocast_enabled", "set_autocast_enabled", SettingKey::kDevice},
    {"_get_autograd_fallback_mode", "_set_autograd_fallback_mode"},
    {"_get_backcompat_broadcast_warn", "_set_backcompat_broadcast_warn"},
    {"_get_backcompat_keepdim_warn", "_set_backcompat_keepdim_warn"},
    {"_get_blas_preferred_backend", "_set_blas_preferred_backend"},
    {"_get_cpu_allow_fp16_reduced_precision_reduction", "_set_cpu_allow_fp16_reduced_precision_reduction"},
    {"_get_cublas_allow_bf16_reduced_precision_reduction", "_set_cublas_allow_bf16_reduced_precision_reduction"},
    {"_get_cublas_allow_fp16_accumulation", "_set_cublas_allow_fp16_accumulation"},
    {"_get_cublas_allow_fp16_reduced_precision_reduction", "_set_cublas_allow_fp16_reduced_precision_reduction"},
    {"_get_cublas_allow_tf32", "_set_cublas_allow_tf32"},
    {"_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"},
    {"_get_cudnn_benchmark", "_set_cudnn_benchmark"},
    {"_get_cudnn_depthwise_kernel", "_set_cudnn_depthwise_kernel"},
    {"_get_cudnn_deterministic", "_set_cudnn_deterministic"},
    {"_get_cudnn_enabled", "_set_cudnn_enabled"},
    {"_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"},
    {kWarnOnly, "_set_deterministic_algorithms"},
    {"_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"},
    {"_get_dtensor_allow_implicit_replication", "_set_dtensor_allow_implicit_replication"},
    {"_get_fa3_sdp_enabled", "_set_sdp_use_fa3"},
    {"_get_flash_sdp_enabled", "_set_sdp_use_flash"},
    {"_get_float32_matmul_precision", "_set_float32_matmul_precision"},
    {"_get_fp32_precision_getter", "_set_fp32_precision_setter", SettingKey::kBackend},
    {"_get_graph_executor_optimize", "_set_graph_executor_optimize"},
    {"_get_linalg_preferred_backend", "_set_linalg_preferred_backend"},
    {"_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction"},
    {"_get_math_sdp_enabled", "_set_sdp_use_math"},
    {"_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"},
    {"_get_miopen_immediate", "_set_miopen_immediate"},
    {"_get_mkldnn_deterministic", "_set_mkldnn_deterministic"},
    {"_get_mkldnn_enabled", "_set_mkldnn_enabled"},
    {"_get_nnpack_enabled", "_set_nnpack_enabled"},
    {"_get_onednn_allow_tf32", "_set_onednn_allow_tf32"},
    {"_get_overrideable_sdp_enabled", "_set_sdp_use_overrideable"},
    {"_get_qengine", "_set_qengine"},
    {"_get_rocm_fa_preferred_backend", "_set_rocm_fa_preferred_backend"},
    {"_get_sdp_priority_order", "_set_sdp_priority_order", SettingKey::kNone, /*by_kernels=*/true},
    {"_get_sm_carveout_experimental", "_set_sm_carveout_experimental"},
    {"_get_thread_name", "_set_thread_name"},
    {"_get_warnAlways", "_set_warnAlways"},
    {"_check_sparse_tensor_invariants", "_set_check_sparse_tensor_invariants"},
    {"_is_fwd_grad_enabled", "_set_fwd_grad_enabled"},
    {"_is_grad_layout_enforcement_enabled", "_set_grad_layout_enforcement_enabled"},
    {"_is_multithreading_enabled", "_set_multithreading_enabled"},
    {"_is_view_replay_enabled", "_set_view_replay_enabled"},
};

/// Functions whose results need no guard here: `ThreadState` holds them, `has_unknown_layers` rules them out, they do
/// not change in a process, or they tell something about their argument.
constexpr std::array<std::string_view, 24> kKnown{"_get_accelerator",
                                                  "_get_all_dtypes",
                                                  "_get_cpu_capability",
                                                  "_get_default_device",
                                                  "_get_deterministic_algorithms",
                                                  "_get_privateuse1_backend_name",
                                                  "_get_torch_function_state",
                                                  "_is_any_autocast_enabled",
                                                  "_is_torch_function_all_disabled",
                                                  "_is_torch_function_enabled",
                                                  "_is_torch_function_mode_enabled",
                                                  "get_default_dtype",
                                                  "is_anomaly_enabled",
                                                  "is_autocast_cache_enabled",
                                                  "is_autocast_cpu_enabled",
                                                  "is_grad_enabled",
                                                  "is_inference_mode_enabled",
                                                  "_set_default_dtype",
                                                  "_set_default_tensor_type",
                                                  "_set_grad_enabled",
                                                  "_set_torch_function_state",
                                                  "set_autocast_cache_enabled",
                                                  "set_autocast_cpu_enabled",
                                                  "_set_tensor_metadata"};

/// Getters elsewhere.
constexpr std::pair<const char*, const char*> kOthers[] = {{"gc", "isenabled"},
                                                           {"gc", "get_threshold"},
                                                           {"sys", "getrecursionlimit"},
                                                           {"sys", "getswitchinterval"},
                                                           {"sys", "get_int_max_str_digits"},
                                                           {"_socket", "getdefaulttimeout"},
                                                           {"_thread", "get_ident"},
                                                           {"_thread", "get_native_id"},
                                                           {"numpy._core._multiarray_umath", "_get_extobj_dict"},
                                                           {"numpy.core._multiarray_umath", "geterrobj"},
                                                           {"torch._C._autograd", "_profiler_enabled"}};

enum class Role : std::uint8_t {
  kGetter,    ///< reads a setting of the table
  kSetter,    ///< writes a setting of the table
  kReads,     ///< gives something that nobody here sets
  kDecimal,   ///< gives the context of `decimal`
  kHandled,   ///< gives the exception that is being handled
  kAbstract,  ///< tells whether something is an instance or a subclass of an abstract class
  kChanges,   ///< sets something that nobody can put back
};

struct Function {
  Role role;
  std::size_t setting;
  py::Ref object;
  std::string name;
};

bool is_known(std::string_view name) { return std::ranges::find(kKnown, name) != kKnown.end(); }
constexpr std::string_view kPushDispatchMode = "_push_on_torch_dispatch_stack";

/// A dispatch mode is told of kernels' operations, which a trace runs in no order of the program's.
bool sets(std::string_view name) {
  return name.starts_with("_set_") || name.starts_with("set_") || name.starts_with("_dispatch_tls_set_") ||
         name == kPushDispatchMode;
}
bool gets(std::string_view name) {
  return name.starts_with("_get_") || name.starts_with("get_") || name.starts_with("_is_") || name.starts_with("is_") ||
         name.ends_with("_enabled");
}

using Functions = std::unordered_map<const void*, Function>;

void add(Functions& functions, Role role, std::size_t setting, const char* module, const std::string& name) {
  py::Ref function = loaded_function(module, name);
  if (!function || !PyCFunction_Check(function.get())) return;
  const void* identity = interpreter::native_identity(function.get());
  functions.try_emplace(identity, Function{role, setting, std::move(function), module + ("." + name)});
}

/// Those of modules that were imported since the last time.
void add_others(Functions& functions) {
  static std::array<bool, std::size(kOthers) + 5> is_added{};
  const auto add_once = [&](bool& done, Role role, const char* module, const char* name) {
    if (done || PyDict_GetItemString(PyImport_GetModuleDict(), module) == nullptr) return;
    done = true;
    add(functions, role, 0, module, name);
  };
  for (std::size_t i = 0; i < std::size(kOthers); ++i) {
    add_once(is_added[i], Role::kReads, kOthers[i].first, kOthers[i].second);
  }
  auto* done = &is_added[std::size(kOthers)];
  add_once(*done++, Role::kHandled, "sys", "exc_info");
  add_once(*done++, Role::kHandled, "sys", "exception");
  add_once(*done++, Role::kDecimal, "_decimal", "getcontext");
  add_once(*done++, Role::kAbstract, "_abc", "_abc_instancecheck");
  add_once(*done, Role::kAbstract, "_abc", "_abc_subclasscheck");
}

Functions& known_functions() {
  static Functions& kFunctions = *[] {
    auto* functions = new Functions;
    for (std::size_t i = 0; i < std::size(kSettings); ++i) {
      add(*functions, Role::kGetter, i, "torch._C", kSettings[i].getter);
      add(*functions, Role::kSetter, i, "torch._C", kSettings[i].setter);
    }
    const py::Ref module = py::Ref::steal(py::import_module("torch._C"));
    const py::Ref names = py::Ref::steal(module ? PyObject_Dir(module.get()) : nullptr);
    for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names.get()); ++i) {
      const std::string name = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), i));
      if (is_known(name) || !(sets(name) || gets(name))) continue;
      add(*functions, sets(name) ? Role::kChanges : Role::kReads, 0, "torch._C", name);
    }
    PyErr_Clear();
    return functions;
  }();
  return kFunctions;
}

/// A function or class in C of NumPy.
bool is_of_numpy(PyObject* callable) {
  if (PyType_Check(callable))
    return std::string_view(reinterpret_cast<PyTypeObject*>(callable)->tp_name).starts_with("numpy.");
  if (!PyCFunction_Check(callable)) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  return name != nullptr && std::string_view(name).starts_with("numpy");
}

bool is_constant(PyObject* value) {
  return value == Py_None || PyLong_Check(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         std::string_view(Py_TYPE(value)->tp_name) == "torch.dtype";
}

py::Ref in_python(const char* name) {
  const py::Ref module = py::Ref::steal(py::import_module("thunder._settings"));
  return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
}

/// `functools.partial(function, *arguments)`.
py::Ref partial_of(const std::vector<PyObject*>& values) {
  const py::Ref module = py::Ref::steal(py::import_module("functools"));
  const py::Ref partial = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "partial") : nullptr);
  return py::Ref::steal(partial ? PyObject_Vectorcall(partial.get(), values.data(), values.size(), nullptr) : nullptr);
}

bool are_equal(PyObject* left, PyObject* right) {
  if (interpreter::equal_constants(left, right)) return true;
  const int equal = is_constant(left) ? 0 : PyObject_RichCompareBool(left, right, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

/// The arguments that a setting is asked with, as tuples. A back end's own precision comes after those that it may
/// follow.
std::vector<py::Ref> keys_of(const Setting& setting) {
  constexpr std::pair<const char*, const char*> kPrecisions[] = {
      {"generic", "all"}, {"cuda", "all"},      {"mkldnn", "all"},  {"cuda", "matmul"}, {"cuda", "conv"},
      {"cuda", "rnn"},    {"mkldnn", "matmul"}, {"mkldnn", "conv"}, {"mkldnn", "rnn"}};
  std::vector<py::Ref> keys;
  switch (setting.key) {
    case SettingKey::kNone:
      keys.push_back(py::Ref::steal(PyTuple_New(0)));
      break;
    case SettingKey::kDevice:
      for (const c10::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
        keys.push_back(py::Ref::steal(Py_BuildValue("(s)", c10::DeviceTypeName(device, /*lower_case=*/true).c_str())));
      }
      break;
    case SettingKey::kBackend:
      for (const auto& [backend, operation] : kPrecisions) {
        keys.push_back(py::Ref::steal(Py_BuildValue("(ss)", backend, operation)));
      }
      break;
  }
  return keys;
}

/// `is_autocast_enabled(device)` of a device whose autocast `ThreadState` knows.
bool is_guarded_autocast(const NativeCall& call) {
  if (call.count == 0) return true;
  PyObject* device = call.arguments[0];
  return PyUnicode_Check(device) && (PyUnicode_CompareWithASCIIString(device, "cpu") == 0 ||
                                     PyUnicode_CompareWithASCIIString(device, "cuda") == 0);
}

/// Whether a call's arguments are the strings of a tuple.
bool is_called_with(const NativeCall& call, PyObject* key) {
  if (PyTuple_GET_SIZE(key) != static_cast<Py_ssize_t>(call.count)) return false;
  for (std::size_t i = 0; i < call.count; ++i) {
    PyObject* part = PyTuple_GET_ITEM(key, static_cast<Py_ssize_t>(i));
    if (!PyUnicode_Check(call.arguments[i]) || PyUnicode_Compare(call.arguments[i], part) != 0) return false;
  }
  return true;
}

py::Ref value_of(std::size_t setting, const py::Ref& key) {
  const py::Ref getter = loaded_function("torch._C", kSettings[setting].getter);
  py::Ref value = py::Ref::steal(getter ? PyObject_CallObject(getter.get(), key.get()) : nullptr);
  PyErr_Clear();
  return value;
}

/// The exception that is being handled; null for none.
py::Ref handled_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_GetExcInfo(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  py::Ref exception = py::Ref::steal(value);
  return exception.get() == Py_None ? py::Ref() : std::move(exception);
}

}  // namespace

TorchSettings::TorchSettings(interpreter::Tracker& tracker) : tracker_(tracker), handled_(handled_exception()) {
  const interpreter::NativeScope native;
  add_others(known_functions());
  for (std::size_t i = 0; i < std::size(kSettings); ++i) {
    for (py::Ref& key : keys_of(kSettings[i])) {
      if (py::Ref value = value_of(i, key)) before_.push_back({i, std::move(key), std::move(value)});
    }
  }
  const py::Ref type = in_python("StateOfModules");
  modules_ = py::Ref::steal(type ? PyObject_CallNoArgs(type.get()) : nullptr);
  PyErr_Clear();
}

bool TorchSettings::is_changed(const Before& before) const {
  const py::Ref value = value_of(before.setting, before.key);
  return value && !are_equal(value.get(), before.value.get());
}

std::optional<std::string> TorchSettings::restore_modules() {
  PyObject* sets_warnings = sets_warnings_ ? Py_True : Py_False;
  const py::Ref changed =
      py::Ref::steal(modules_ ? PyObject_CallMethod(modules_.get(), "restore", "O", sets_warnings) : nullptr);
  const char* name = changed && changed.get() != Py_None ? PyUnicode_AsUTF8(changed.get()) : nullptr;
  PyErr_Clear();
  return name == nullptr ? std::nullopt : std::make_optional<std::string>(name);
}

std::optional<std::string> TorchSettings::restore() {
  const interpreter::NativeScope native;
  const py::SavedError pending;
  if (const py::Ref token = loaded_function("_abc", "get_cache_token"); token && asks_abstract_) {
    // Now: what is imported while the function is traced registers classes, too.
    const py::Ref value = py::Ref::steal(PyObject_CallNoArgs(token.get()));
    if (value) tracker_.record_result(token.get(), "abc.get_cache_token()", value.get());
  }
  std::optional<std::string> changed = restore_modules();
  const std::vector<std::size_t> set = std::exchange(set_, {});
  if (set.empty()) return changed;
  for (const Before& before : before_) {
    const bool is_set_by_kernels =
        kSettings[before.setting].by_kernels && std::ranges::find(set, before.setting) == set.end();
    if (is_set_by_kernels || !is_changed(before)) continue;
    changed = std::string("torch._C.") + kSettings[before.setting].getter + "()";
    if (kSettings[before.setting].getter == kWarnOnly) {
      at::Context& context = at::globalContext();
      context.setDeterministicAlgorithms(context.deterministicAlgorithms(), before.value.get() == Py_True);
      continue;
    }
    const py::Ref setter = loaded_function("torch._C", kSettings[before.setting].setter);
    const bool has_several = PyTuple_Check(before.value.get());
    const py::Ref values = has_several ? before.value : py::Ref::steal(PyTuple_Pack(1, before.value.get()));
    const py::Ref arguments = py::Ref::steal(PySequence_Concat(before.key.get(), values.get()));
    static_cast<void>(py::Ref::steal(PyObject_CallObject(setter.get(), arguments.get())));
    PyErr_Clear();
  }
  return changed;
}

int TorchSettings::read(const NativeCall& call, PyObject* getter, const std::string& name, PyObject** result) {
  if (call.names != nullptr || !std::all_of(call.arguments, call.arguments + call.count, is_constant)) return 0;
  *result = PyObject_Vectorcall(getter, call.arguments, call.count, nullptr);
  if (*result == nullptr) return -1;
  std::vector<PyObject*> bound{getter};
  bound.insert(bound.end(), call.arguments, call.arguments + call.count);
  if (!is_constant(*result)) {
    const py::Ref text = py::Ref::steal(PyObject_Repr(*result));
    if (text) record_text(bound, name, text.get());
  } else if (const py::Ref function = bound.size() == 1 ? py::Ref::share(getter) : partial_of(bound)) {
    tracker_.record_result(function.get(), name, *result);
  }
  if (PyErr_Occurred() == nullptr) return 1;
  Py_CLEAR(*result);
  return -1;
}

/// Guards a value without equals by its text.
void TorchSettings::record_text(const std::vector<PyObject*>& call, const std::string& name, PyObject* text) {
  const py::Ref text_of = in_python("text_of");
  std::vector<PyObject*> bound{text_of.get()};
  bound.insert(bound.end(), call.begin(), call.end());
  const py::Ref function = text_of ? partial_of(bound) : py::Ref();
  if (function) tracker_.record_result(function.get(), name, text);
}

void TorchSettings::record_numpy_errors() {
  if (std::exchange(reads_numpy_, true)) return;
  const interpreter::NativeScope native;
  constexpr std::pair<const char*, const char*> kGetters[] = {{"numpy._core._multiarray_umath", "_get_extobj_dict"},
                                                              {"numpy.core.umath", "geterrobj"}};
  for (const auto& [module, name] : kGetters) {
    const py::Ref getter = loaded_function(module, name);
    const py::Ref value = py::Ref::steal(getter ? PyObject_CallNoArgs(getter.get()) : nullptr);
    const py::Ref text = py::Ref::steal(value ? PyObject_Repr(value.get()) : nullptr);
    if (text) return record_text({getter.get()}, "numpy.geterr()", text.get());
  }
  PyErr_Clear();
}

int TorchSettings::read_handled(PyObject* getter, const std::string& name, PyObject** result) {
  const py::Ref exception = handled_exception();
  if (exception.get() != handled_.get()) return 0;  // an exception of the program
  if (exception) {
    PyErr_Format(PyExc_NotImplementedError,
                 "thunder.jit: %s() is asked about an exception that the caller of the function handles; pass it",
                 name.c_str());
    return -1;
  }
  *result = PyObject_CallNoArgs(getter);
  if (*result == nullptr) return -1;
  tracker_.record_result(getter, name, *result);
  return 1;
}

int TorchSettings::ask_abstract_class(PyObject* callable, const NativeCall& call, PyObject** result) {
  *result = PyObject_Vectorcall(callable, call.arguments, call.count, nullptr);
  asks_abstract_ |= *result == Py_False;
  return *result == nullptr ? -1 : 1;
}

void TorchSettings::note_type(const PyTypeObject* type) {
  if (std::string_view(type->tp_name).starts_with("numpy.")) record_numpy_errors();
  if (std::string_view(type->tp_name).starts_with("decimal.")) record_decimal_context();
}

/// As it was before the program, which may have set it since.
void TorchSettings::record_decimal_context() {
  if (std::exchange(reads_decimal_, true) || !modules_) return;
  const interpreter::NativeScope native;
  const py::Ref text = py::Ref::steal(PyObject_GetAttrString(modules_.get(), "decimal_context"));
  const py::Ref getter = loaded_function("_decimal", "getcontext");
  if (text && getter && PyUnicode_Check(text.get())) record_text({getter.get()}, "decimal.getcontext", text.get());
}

bool TorchSettings::is_own(std::size_t setting, const NativeCall& call) const {
  return std::ranges::any_of(before_, [&](const Before& before) {
    return before.setting == setting && is_called_with(call, before.key.get()) && is_changed(before);
  });
}

int TorchSettings::intercept(PyObject* callable, const NativeCall& call, PyObject** result) {
  if (std::string_view(Py_TYPE(callable)->tp_name).starts_with("numpy.") || is_of_numpy(callable)) {
    record_numpy_errors();
  }
  const auto found = known_functions().find(call.function);
  if (found == known_functions().end()) return 0;
  const Function& function = found->second;
  if (function.role == Role::kChanges) {
    const std::string message = function.name.ends_with(kPushDispatchMode)
                                    ? "thunder.jit: a dispatch mode is entered inside of the function, as make_fx and "
                                      "torch.func.linearize do, which compiled code does not follow; do it outside"
                                    : "thunder.jit: " + function.name + " cannot be repeated by compiled code";
    tracer::note_refusal(message);
    PyErr_SetString(PyExc_NotImplementedError, message.c_str());
    return -1;
  }
  if (function.role == Role::kSetter) {
    set_.push_back(function.setting);
    return 0;
  }
  if (function.role == Role::kHandled) return read_handled(function.object.get(), function.name, result);
  if (function.role == Role::kAbstract) return ask_abstract_class(callable, call, result);
  if (function.role == Role::kDecimal) {
    record_decimal_context();
    return 0;
  }
  static const std::string kEnabled = "torch._C.is_autocast_enabled";
  if (function.name == kEnabled && is_guarded_autocast(call)) return 0;
  if (function.role == Role::kGetter && is_own(function.setting, call)) return 0;
  return read(call, function.object.get(), function.name, result);
}

}  // namespace thunder::dispatch
