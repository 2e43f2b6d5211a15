#include "dispatch/capture/sharp_edges.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dispatch/capture/substitutes.h"
#include "dispatch/python/errors.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/loop/signal_handlers.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/slots.h"
#include "ir/location.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

constexpr const char* kNotRepeated = "happens while the function is traced, and not at later calls";
constexpr const char* kValueKept = "gives a value while the function is traced, and later calls use that value again";
constexpr const char* kStateKept = "may change or read what only code in C knows, while the function is traced";

// Functions in C: of a module, or of a type in it. Names are separated by spaces; no names: all public ones.
struct SharpFunctions {
  const char* module;
  const char* type;  ///< null: functions of the module
  const char* names;
  const char* consequence;
};
constexpr SharpFunctions kSharpFunctions[] = {
    {"builtins", nullptr, "print", kNotRepeated},
    {"builtins", nullptr, "input open", kValueKept},
    {"_warnings", nullptr, "warn warn_explicit", kNotRepeated},
    {"_io", nullptr, "open open_code FileIO", kValueKept},
    {"_io", "TextIOWrapper", "write flush truncate", kNotRepeated},
    {"_io", "TextIOWrapper", "read readline readlines seek tell __next__", kValueKept},
    {"_io", "BufferedWriter", "write flush", kNotRepeated},
    {"_io", "BufferedReader", "read read1 readinto readline readlines peek seek tell __next__", kValueKept},
    {"_io", "FileIO", "write truncate", kNotRepeated},
    {"_io", "FileIO", "read readall readinto seek tell", kValueKept},
    {"posix", nullptr, "open read stat lstat listdir scandir access getpid getcwd urandom times", kValueKept},
    {"_signal", nullptr, "signal alarm setitimer siginterrupt set_wakeup_fd", kNotRepeated},
    {"_signal", nullptr, "getsignal getitimer", kValueKept},
    {"_socket", nullptr, "setdefaulttimeout", kNotRepeated},
    {"_locale", nullptr, "setlocale", kNotRepeated},
    {"_contextvars", "ContextVar", "set reset", kNotRepeated},
    {"_locale", nullptr, "localeconv", kValueKept},
    {"_codecs", nullptr, "register unregister register_error", kNotRepeated},
    {"_posixsubprocess", nullptr, "fork_exec", kNotRepeated},
    {"_socket", "socket", "", kValueKept},
    {"select", nullptr, "", kValueKept},
    {"datetime", "datetime", "now utcnow today", kValueKept},
    {"datetime", "date", "today", kValueKept},
    {"_random", "Random", "random getrandbits seed getstate setstate", kValueKept},
    {"numpy.random", "RandomState", "", kValueKept},
    {"numpy.random", "Generator", "", kValueKept},
    {"numpy", nullptr, "fromfile", kValueKept},
    {"numpy", "ndarray", "tofile dump", kNotRepeated},
    {"_thread", "LockType", "locked", kValueKept},
    {"_thread", "RLock", "_is_owned", kValueKept},
    {"functools", "_lru_cache_wrapper", "cache_info cache_clear", kStateKept},
};

// Modules in C that reach the system or the state of the process, and their functions that do not.
struct HarmlessFunctions {
  std::string_view module;
  std::string_view names;  ///< separated and surrounded by spaces
};
constexpr HarmlessFunctions kHarmlessFunctions[] = {
    {"posix",
     " fspath strerror cpu_count major minor makedev waitstatus_to_exitcode _path_normpath _path_splitroot_ex "
     "_path_splitroot WIFEXITED WIFSIGNALED WIFSTOPPED WIFCONTINUED WEXITSTATUS WTERMSIG WSTOPSIG WCOREDUMP "},
    {"time", " mktime strptime get_clock_info "},
    {"gc", " isenabled get_threshold get_debug is_tracked is_finalized get_referents "},
    {"sys",
     " _getframe _getframemodulename _is_gil_enabled _is_interned exc_info exception exit intern is_finalizing "
     "breakpointhook getdefaultencoding getfilesystemencoding getfilesystemencodeerrors getrefcount getsizeof "
     "getrecursionlimit getswitchinterval get_int_max_str_digits gettrace getprofile getdlopenflags "
     "get_coroutine_origin_tracking_depth get_asyncgen_hooks is_stack_trampoline_active audit "},
    {"_thread",
     " allocate allocate_lock get_ident get_native_id exit _set_sentinel daemon_threads_allowed "
     "_get_main_thread_ident _is_main_interpreter "}};

/// Modules in C whose functions do nothing but compute, but for those above.
constexpr std::string_view kPlainModules[] = {
    "_abc",      "_ast",        "_bisect",   "_blake2",   "_codecs",     "_collections", "_contextvars", "_datetime",
    "_decimal",  "_functools",  "_hashlib",  "_heapq",    "_imp",        "_io",          "_json",        "_locale",
    "_md5",      "_opcode",     "_operator", "_pickle",   "_random",     "_sha1",        "_sha2",        "_sha256",
    "_sha3",     "_sha512",     "_sre",      "_stat",     "_statistics", "_string",      "_struct",      "_typing",
    "_tokenize", "_warnings",   "_weakref",  "array",     "binascii",    "builtins",     "cmath",        "collections",
    "datetime",  "decimal",     "errno",     "functools", "itertools",   "marshal",      "math",         "operator",
    "types",     "unicodedata", "zlib"};

constexpr const char* kLoggerMethods[] = {"debug", "info", "warning", "error", "critical", "exception", "log", "_log"};

/// The object whose method is called; null for a function. pybind11 keeps a record of its own in the place of `self`.
PyObject* object_of_method(const interpreter::NativeCall& call) {
  const bool is_record =
      call.self != nullptr &&
      (PyCapsule_CheckExact(call.self) || std::string_view(Py_TYPE(call.self)->tp_name).starts_with("pybind11_"));
  if (!is_record) return call.self;
  return call.count > 0 ? call.arguments[0] : nullptr;
}

/// Whether it is an instance of a class that pybind11 made, or of one in Python that builds on it. Some of them are
/// called like functions: methods of scripted modules.
bool is_of_cpp(PyObject* object) {
  return std::string_view(Py_TYPE(Py_TYPE(object))->tp_name).ends_with("pybind11_type");
}

/// Containers, whose methods the tracker knows.
bool is_container(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || PyAnySet_Check(object) ||
         PyRange_Check(object) || name.starts_with("collections.");
}

/// Whether an object has a part in C that is neither guarded nor a container: `io.StringIO`, and what is derived of it.
bool has_unknown_part(PyObject* object, PyTypeObject* native) {
  if (PyExceptionInstance_Check(object)) return true;
  if (native == &PyBaseObject_Type || PyFunction_Check(object) || PyModule_Check(object) || PyGen_CheckExact(object) ||
      PyCoro_CheckExact(object) || PyWeakref_Check(object)) {
    return false;
  }
  const interpreter::StateKind kind = interpreter::state_kind(object);
  if (kind != interpreter::StateKind::kNone) return kind == interpreter::StateKind::kIdentity;
  return interpreter::is_python_class(Py_TYPE(object)) || interpreter::instance_dict(object);
}

/// Whether an object in C may remember what its methods do.
bool keeps_hidden_state(PyObject* object) {
  constexpr const char* kHarmless[] = {"_thread.",
                                       "datetime.",
                                       "decimal.Decimal",
                                       "zoneinfo.",
                                       "functools.",
                                       "operator.",
                                       "typing.",
                                       "method-wrapper",
                                       "method_descriptor",
                                       "wrapper_descriptor",
                                       "getset_descriptor",
                                       "member_descriptor",
                                       "PyCapsule",
                                       "pybind11_",
                                       "numpy._ArrayFunctionDispatcher",
                                       "types.",
                                       "re.",
                                       "_struct.",
                                       "numpy.dtype",
                                       "numpy.ufunc",
                                       "torch.dtype",
                                       "torch.device",
                                       "torch.layout",
                                       "torch.finfo",
                                       "torch.iinfo",
                                       "torch.memory_format",
                                       "torch.Size",
                                       "torch.jit.torch.jit.ScriptFunction",
                                       "torch._C._functorch.",
                                       "torch._C.TensorBase",
                                       "torch._C.Generator",
                                       "torch._C._FunctionBase",
                                       "torch.Tensor",
                                       "torch._C.DispatchKey",
                                       "torch._C.Tag"};
  if (PyType_Check(object)) return false;
  PyTypeObject* native = interpreter::native_base(Py_TYPE(object));
  const std::string_view name = native->tp_name;
  if (name.starts_with("torch._C._distributed") || name.starts_with("torch.distributed")) return true;
  if (is_container(object)) return false;
  if (!is_of_cpp(object) && !has_unknown_part(object, native)) return false;
  return std::ranges::none_of(kHarmless, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// pybind11 binds its functions to what describes them.
bool is_function_of_torch(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  return name != nullptr && std::string_view(name).starts_with("torch.");
}

std::string name_of_function(PyObject* function) {
  const auto* object = reinterpret_cast<PyCFunctionObject*>(function);
  return std::string(PyUnicode_AsUTF8(object->m_module)) + "." + object->m_ml->ml_name;
}

/// The module in which a function or a class says that it was made.
std::string defining_module(PyObject* object) {
  const py::Ref module = py::Ref::steal(PyObject_GetAttrString(object, "__module__"));
  const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : "";
  PyErr_Clear();
  return text;
}

/// Whether an object is called by C code of its own without being a function or a class: only what is known of some
/// does no more than compute.
bool is_unknown_callable(PyObject* callable) {
  constexpr std::string_view kKnown[] = {"functools.", "operator.",    "_operator.", "types.",  "typing.",
                                         "numpy.",     "torch.",       "thunder.",   "weakref", "method",
                                         "wrapper_",   "classmethod_", "builtin_"};
  if (PyCFunction_Check(callable) || PyType_Check(callable) || PyFunction_Check(callable)) return false;
  PyTypeObject* native = interpreter::native_base(Py_TYPE(callable));
  if (native->tp_call == nullptr || is_of_cpp(callable)) return false;
  const std::string_view name = native->tp_name;
  const auto is_of_plain = [&](std::string_view module) {
    return name.starts_with(module) && name[module.size()] == '.';
  };
  if (std::ranges::any_of(kPlainModules, is_of_plain)) return false;
  if (name != "cython_function_or_method") {
    return std::ranges::none_of(kKnown, [&](std::string_view prefix) { return name.starts_with(prefix); });
  }
  return !defining_module(callable).starts_with("numpy.");
}

/// Whether a function in C, of a module that is neither listed nor of PyTorch or NumPy, may do anything.
bool is_unknown_function(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* self = PyCFunction_GET_SELF(callable);
  if (self != nullptr && !PyModule_Check(self)) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  const char* text = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (text == nullptr) return PyErr_Clear(), false;
  const std::string_view name = text;
  for (const HarmlessFunctions& row : kHarmlessFunctions) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    if (row.module == name) return row.names.find(" " + std::string(function->m_ml->ml_name) + " ") == row.names.npos;
  }
  const auto is_of = [&](std::string_view package) { return name.starts_with(package); };
  return !is_of("torch") && !is_of("numpy") && !is_of("thunder") &&
         std::ranges::find(kPlainModules, name) == std::end(kPlainModules);
}

py::Ref error_type(const char* name) {
  const py::Ref module = py::Ref::steal(py::import_module("thunder.errors"));
  return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
}

/// Whether a call of a method of a logger reaches any handler: its level says.
bool is_enabled(const char* method, PyObject* const* arguments, std::size_t count) {
  if (count == 0) return false;
  const std::string_view name = method;
  const bool tells_level = (name == "log" || name == "_log") && count > 1;
  const long level = tells_level          ? PyLong_AsLong(arguments[1])
                     : name == "debug"    ? 10
                     : name == "info"     ? 20
                     : name == "warning"  ? 30
                     : name == "critical" ? 50
                                          : 40;
  const interpreter::NativeScope native;
  const py::Ref enabled = py::Ref::steal(PyObject_CallMethod(arguments[0], "isEnabledFor", "l", level));
  if (!enabled) PyErr_Clear();
  return enabled.get() == Py_True;
}

}  // namespace

void SharpEdgeWatch::add_methods(const char* module, const char* type, const char* names, const char* consequence) {
  const py::Ref owner = loaded_function(module, type);
  if (!owner) return;
  const auto add = [&](const std::string& name) {
    const py::Ref function = py::Ref::steal(PyObject_GetAttrString(owner.get(), name.c_str()));
    if (!function) return PyErr_Clear();
    std::string shown = std::string_view(module) == "builtins" ? "" : std::string(module) + ".";
    if (shown.starts_with("_")) shown.erase(0, 1);
    if (*type != '\0') shown += std::string(type) + ".";
    edges_.emplace(interpreter::native_identity(function.get()), Edge{shown + name, consequence});
  };
  std::string_view rest = names;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    add(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (*names != '\0') return;
  const py::Ref all = py::Ref::steal(PyObject_Dir(owner.get()));
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GET_ITEM(all.get(), i));
    if (name != nullptr && name[0] != '_') add(name);
  }
}

void SharpEdgeWatch::fill() {
  const interpreter::NativeScope native;
  for (const SharpFunctions& row : kSharpFunctions)
    add_methods(row.module, row.type == nullptr ? "" : row.type, row.names, row.consequence);
}

bool SharpEdgeWatch::report(const Edge& edge) {
  if (in_trial_) {
    observed_in_trial_ = true;
    PyErr_SetString(PyExc_RuntimeError, edge.name.c_str());
    return false;
  }
  const ir::SourceLocation location = locator_.here();
  if (mode_ == SharpEdges::kExact) {
    const std::string message =
        "thunder.jit: " + edge.name + " cannot be repeated by compiled code" + describe_source(location);
    tracer::note_refusal(message);
    PyErr_SetString(PyExc_NotImplementedError, message.c_str());
    return false;
  }
  const std::string file = location.file == nullptr ? "<unknown>" : *location.file;
  const std::string message = "thunder.jit: sharp edge: " + edge.name + " " + edge.consequence +
                              "; do it outside of the jitted function\n  in " + file + ", line " +
                              std::to_string(location.line);
  const interpreter::NativeScope native;
  const py::Ref type = error_type(mode_ == SharpEdges::kWarn ? "SharpEdgeWarning" : "SharpEdgeError");
  if (!type) return false;
  if (mode_ == SharpEdges::kWarn) {
    return PyErr_WarnExplicit(type.get(), message.c_str(), file.c_str(), location.line, "thunder", nullptr) == 0;
  }
  PyErr_SetString(type.get(), message.c_str());
  return false;
}

bool SharpEdgeWatch::allows(PyObject* callable, const interpreter::NativeCall& call,
                            const interpreter::Tracker& tracker) {
  if (mode_ == SharpEdges::kAllow && !in_trial_) return true;
  if (edges_.empty()) fill();
  const auto found = edges_.find(call.function);
  const bool is_kept = mode_ == SharpEdges::kExact && tracker.native_calls().in_memoized_call();
  if (found != edges_.end()) return is_kept || report(found->second);
  if (is_unknown_function(callable)) return is_kept || report({name_of_function(callable), kStateKept});
  if (is_unknown_callable(callable)) {
    return report({std::string("an object of type '") + Py_TYPE(callable)->tp_name + "', called,", kStateKept});
  }
  PyObject* self = is_of_cpp(callable) ? callable : object_of_method(call);
  if (self == nullptr) return true;
  // Methods of scripted modules are objects that are made anew when they are looked up.
  const bool is_method_object = is_of_cpp(self) && PyCallable_Check(self) != 0;
  const bool is_from_outside = is_method_object || tracker.provenance().find(self) != nullptr;
  if (!is_from_outside || !keeps_hidden_state(self)) return true;
  if (is_function_of_torch(callable) && self == call.self) return true;
  return report({std::string("a method of an object of type '") + Py_TYPE(self)->tp_name + "'", kStateKept});
}

bool SharpEdgeWatch::allows_look(PyObject* object, bool is_given, const interpreter::Tracker& tracker) {
  // PyTorch's operators take objects of C++, and do at each call what they do with them; enumerations are such, too.
  if (is_given && is_of_cpp(object)) return true;
  // Methods of NumPy's generators get them as arguments, and are refused by name.
  if (is_given && std::string_view(Py_TYPE(object)->tp_name).starts_with("numpy.random.")) return true;
  const bool is_kept = mode_ == SharpEdges::kExact && tracker.native_calls().in_memoized_call();
  if ((mode_ == SharpEdges::kAllow && !in_trial_) || is_kept || !keeps_hidden_state(object)) return true;
  // PyTorch's own Python reads its objects (process groups, nodes of graphs), which are guarded by identity.
  if (defining_module(reinterpret_cast<PyObject*>(Py_TYPE(object))).starts_with("torch.")) return true;
  return report(
      {std::string("a look into an object of type '") + Py_TYPE(object)->tp_name + "' from outside", kValueKept});
}

// While a program is traced, CPython knows handlers of ours.
void SharpEdgeWatch::add_signal_substitutes(interpreter::TrackerOptions& options) {
  for (const auto& [name, consequence] : {std::pair("getsignal", kValueKept), std::pair("signal", kNotRepeated)}) {
    const py::Ref function = loaded_function("_signal", name);
    if (!function) continue;
    const Edge edge{std::string("signal.") + name, consequence};
    options.substitute(function.get(), [this, function, edge](PyObject* const* arguments, std::size_t count,
                                                              PyObject* names, PyObject** result) {
      if ((mode_ != SharpEdges::kAllow || in_trial_) && !report(edge)) return -1;
      const py::Ref handler = py::Ref::steal(PyObject_Vectorcall(function.get(), arguments, count, names));
      if (!handler) return -1;
      *result = interpreter::handler_of_user(handler.get()).release();
      return 1;
    });
  }
}

void SharpEdgeWatch::add_substitutes(interpreter::TrackerOptions& options) {
  // Functions in Python, refused before they have begun something that would have to be ended, or that other threads
  // see.
  for (const auto& [module, path] : {std::pair("threading", "Thread.start"), std::pair("threading", "Condition.wait"),
                                     std::pair("threading", "Condition.notify"), std::pair("asyncio", "new_event_loop"),
                                     std::pair("multiprocessing.process", "BaseProcess.start")}) {
    const py::Ref function = loaded_function(module, path);
    if (!function) continue;
    const std::string name = std::string(module) + "." + path;
    options.substitute(function.get(), [this, name](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      if (mode_ == SharpEdges::kAllow && !in_trial_) return 0;
      return report({name, kNotRepeated}) ? 0 : -1;
    });
  }
  if (mode_ == SharpEdges::kExact) return;
  add_signal_substitutes(options);
  for (const char* method : kLoggerMethods) {
    const py::Ref function = loaded_function("logging", std::string("Logger.") + method);
    if (!function) continue;
    options.substitutes[function.get()] = [this, method](PyObject* const* arguments, std::size_t count, PyObject*,
                                                         PyObject**) {
      if (mode_ == SharpEdges::kAllow && !in_trial_) return 0;
      const Edge edge{std::string("logging.Logger.") + method, kNotRepeated};
      return !is_enabled(method, arguments, count) || report(edge) ? 0 : -1;
    };
  }
}

}  // namespace thunder::dispatch
