#include "dispatch/capture/deferred_calls.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/number_arguments.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/object_parts.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {
namespace {

constexpr std::array kLogMethods{"debug", "info", "warning", "warn", "error", "fatal", "critical", "log", "exception"};
/// Functions of `logging` that only look at loggers.
constexpr std::array<std::string_view, 6> kLogQueries{"getLogger",   "getLevelName", "getChild",
                                                      "hasHandlers", "isEnabledFor", "getEffectiveLevel"};

PyObject* keyword(const interpreter::NativeCall& call, const char* name) {
  for (Py_ssize_t i = 0; call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call.names, i), name) == 0) {
      return call.arguments[call.count + static_cast<std::size_t>(i)];
    }
  }
  return nullptr;
}

py::Ref keywords_of(PyObject* const* arguments, std::size_t count, PyObject* names) {
  py::Ref keywords = py::Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; keywords && names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* value = arguments[count + static_cast<std::size_t>(i)];
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), value) < 0) return nullptr;
  }
  return keywords;
}

py::Ref system_object(const char* name) {
  PyObject* found = PySys_GetObject(name);
  return found == nullptr ? py::Ref() : py::Ref::share(found);
}

}  // namespace

void DeferredCalls::enter(const char* module, const char* path, Kind kind) {
  if (const py::Ref function = loaded_function(module, path)) {
    kinds_.emplace(interpreter::native_identity(function.get()), kind);
  }
}

bool DeferredCalls::begin() {
  const interpreter::NativeScope native;
  stdout_ = system_object("stdout");
  stderr_ = system_object("stderr");
  effects_ = py::Ref::steal(py::import_module("thunder._effects"));
  if (!effects_) return false;
  warnings_state_ = py::Ref::steal(PyObject_CallMethod(effects_.get(), "warnings_state", nullptr));
  error_filters_ = py::Ref::steal(PyObject_CallMethod(effects_.get(), "error_filters", nullptr));
  print_options_ = py::Ref::steal(PyObject_CallMethod(effects_.get(), "print_options", nullptr));
  enter("builtins", "print", Kind::kPrint);
  enter("_warnings", "warn", Kind::kWarn);
  enter("_io", "TextIOWrapper.write", Kind::kWrite);
  enter("_io", "TextIOWrapper.flush", Kind::kFlush);
  enter("torch", "tensor", Kind::kMayWarn);
  return warnings_state_ && error_filters_ && print_options_;
}

void DeferredCalls::record_error_filters() {
  const py::Ref filters = std::exchange(error_filters_, {});  // once for each trace
  if (!filters) return;
  const interpreter::NativeScope native;
  const py::Ref ask = py::Ref::steal(PyObject_GetAttrString(effects_.get(), "error_filters"));
  if (ask) tracker_.record_result(ask.get(), "warnings that are errors", filters.get());
  PyErr_Clear();
}

py::Ref DeferredCalls::stream_of(PyObject* file) {
  return file == nullptr || file == Py_None ? system_object("stdout") : py::Ref::share(file);
}

bool DeferredCalls::is_standard(PyObject* stream) const { return stream == stdout_.get() || stream == stderr_.get(); }

bool DeferredCalls::require_program(const char* what) const {
  if (tracer::recorder_on_top() == &recorder_) return true;
  PyErr_Format(PyExc_NotImplementedError, "thunder.jit: %s inside of a function that is differentiated or transformed",
               what);
  return false;
}

py::Ref DeferredCalls::text_of(PyObject* value) {
  auto* type = reinterpret_cast<PyObject*>(&PyUnicode_Type);
  PyObject* text = nullptr;
  const int status = tracker_.before_native_call(type, &value, 1, nullptr, &text);
  if (status < 0) return nullptr;
  if (status == 0) text = PyObject_Str(value);
  return py::Ref::steal(text == nullptr ? nullptr : tracker_.after_native_call(type, &value, 1, nullptr, text));
}

bool DeferredCalls::prints_tensors_alike() const {
  const interpreter::NativeScope native;
  const py::Ref now = py::Ref::steal(PyObject_CallMethod(effects_.get(), "print_options", nullptr));
  if (!now) PyErr_Clear();
  return now && PyUnicode_Compare(now.get(), print_options_.get()) == 0;
}

py::Ref DeferredCalls::shown(PyObject* value) {
  if (PyUnicode_CheckExact(value) || is_traced_number(value)) return py::Ref::share(value);
  if (!is_traced_tensor(value) || !prints_tensors_alike()) return text_of(value);
  shows_tensors_ = true;
  // A copy, since later writes of the program to the tensor are not shown.
  const py::Ref detached = py::Ref::steal(PyObject_CallMethod(value, "detach", nullptr));
  return py::Ref::steal(detached ? PyObject_CallMethod(detached.get(), "clone", nullptr) : nullptr);
}

bool DeferredCalls::defer(py::Ref callable, py::Ref arguments, py::Ref keywords) {
  if (!callable || !arguments) return false;
  calls_.push_back({std::move(callable), std::move(arguments), std::move(keywords)});
  return true;
}

bool DeferredCalls::defer_constant(py::Ref callable, py::Ref arguments) {
  if (!callable || !arguments) return false;
  tracker_.admit_constant(callable.get(), interpreter::describe(callable.get()));
  return defer(std::move(callable), std::move(arguments), nullptr);
}

int DeferredCalls::print(const interpreter::NativeCall& call) {
  PyObject* const file = keyword(call, "file");
  py::Ref stream = stream_of(file);
  const bool is_own = stream && !is_standard(stream.get()) && tracker_.provenance().find(stream.get()) == nullptr;
  if (!stream || !(is_own || is_standard(stream.get()))) {
    PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: print to a file other than sys.stdout and sys.stderr");
    return -1;
  }
  py::Ref arguments = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(call.count)));
  for (std::size_t i = 0; arguments && i < call.count; ++i) {
    PyObject* item = (is_own ? text_of(call.arguments[i]) : shown(call.arguments[i])).release();
    if (item == nullptr) return -1;
    PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i), item);
  }
  py::Ref keywords = keywords_of(call.arguments, call.count, call.names);
  if (!arguments || !keywords) return -1;
  PyObject* function = interpreter::builtin_object("print");
  if (is_own) return py::Ref::steal(PyObject_Call(function, arguments.get(), keywords.get())) ? 1 : -1;
  if (!defer(py::Ref::share(function), std::move(arguments), std::move(keywords))) return -1;
  if (file == nullptr || file == Py_None) calls_.back().stream = std::move(stream);
  return 1;
}

// The epilogue makes the calls behind the writes of the program, those to `sys.stdout` among them.
bool DeferredCalls::fix_stream(Call& call) {
  if (!call.stream || call.stream.get() == system_object("stdout").get()) return true;
  if (tracker_.provenance().find(call.stream.get()) == nullptr) {
    static PyObject* const name = PyUnicode_InternFromString("stdout");
    const py::Ref module = py::Ref::steal(py::import_module("sys"));
    interpreter::Node* node = tracker_.reads().shared_node(PyModule_GetDict(module.get()), "sys");
    tracker_.reads().record_dict_item(*node, name, call.stream.get());
  }
  return PyDict_SetItemString(call.keywords.get(), "file", call.stream.get()) == 0;
}

int DeferredCalls::warn(const interpreter::NativeCall& call) {
  const interpreter::NativeScope native;
  const py::Ref keywords = keywords_of(call.arguments, call.count, call.names);
  const py::Ref make = py::Ref::steal(PyObject_GetAttrString(effects_.get(), "deferred_warning"));
  py::Ref arguments = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(call.count) + 1));
  if (!keywords || !make || !arguments) return -1;
  PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(warnings_state_.get()));
  for (std::size_t i = 0; i < call.count; ++i) {
    PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i) + 1, Py_NewRef(call.arguments[i]));
  }
  py::Ref deferred = py::Ref::steal(PyObject_Call(make.get(), arguments.get(), keywords.get()));
  if (deferred.get() == Py_None) {
    const py::Ref given = py::Ref::steal(PyTuple_GetSlice(arguments.get(), 1, PY_SSIZE_T_MAX));
    const py::Ref function = loaded_function("_warnings", "warn");
    return given && py::Ref::steal(PyObject_Call(function.get(), given.get(), keywords.get())) ? 1 : -1;
  }
  return defer_constant(std::move(deferred), py::Ref::steal(PyTuple_New(0))) ? 1 : -1;
}

int DeferredCalls::write(const interpreter::NativeCall& call, PyObject** result) {
  if (call.count != 1 || !PyUnicode_Check(call.arguments[0])) return 0;
  *result = PyLong_FromSsize_t(PyUnicode_GET_LENGTH(call.arguments[0]));
  // Each call writes to the stream that it finds where this one was.
  py::Ref method = loaded_function("_io", "TextIOWrapper.write");
  py::Ref arguments = py::Ref::steal(PyTuple_Pack(2, call.self, call.arguments[0]));
  return *result != nullptr && defer_constant(std::move(method), std::move(arguments)) ? 1 : -1;
}

int DeferredCalls::intercept(const interpreter::NativeCall& call, PyObject** result) {
  const auto found = kinds_.find(call.function);
  if (found == kinds_.end() || tracker_.native_calls().in_memoized_call()) return 0;
  if (found->second == Kind::kWarn || found->second == Kind::kMayWarn) record_error_filters();
  if (found->second == Kind::kMayWarn) return 0;
  const bool is_stream = found->second == Kind::kWrite || found->second == Kind::kFlush;
  if (is_stream && (call.self == nullptr || !is_standard(call.self))) return 0;
  if (!require_program("print, warn or write")) return -1;
  *result = Py_NewRef(Py_None);
  int status = 0;
  switch (found->second) {
    case Kind::kPrint:
      status = print(call);
      break;
    case Kind::kWarn:
      status = warn(call);
      break;
    case Kind::kMayWarn:
      break;
    case Kind::kWrite:
      status = write(call, result);
      break;
    case Kind::kFlush: {
      py::Ref method = loaded_function("_io", "TextIOWrapper.flush");
      status = defer_constant(std::move(method), py::Ref::steal(PyTuple_Pack(1, call.self))) ? 1 : -1;
      break;
    }
  }
  if (status != 1) Py_CLEAR(*result);
  return status;
}

// Nobody asks for the text of what is logged then. A logger that is on is asked again at each call.
int DeferredCalls::is_off(const char* method, PyObject* logger, PyObject* const* arguments, std::size_t count) {
  static PyObject* const name = PyUnicode_InternFromString("isEnabledFor");
  const py::Ref function = loaded_function("logging", "Logger.isEnabledFor");
  if (!function || _PyType_Lookup(Py_TYPE(logger), name) != function.get()) return 0;
  const bool tells_level = std::string_view(method) == "log";
  if (std::string_view(method) == "warn" || (tells_level && (count == 0 || !PyLong_CheckExact(arguments[0])))) return 0;
  const py::Ref levels = py::Ref::steal(PyObject_GetAttrString(effects_.get(), "LEVELS"));
  if (!levels) return -1;
  PyObject* level = tells_level ? arguments[0] : PyDict_GetItemString(levels.get(), method);
  if (level == nullptr) return 0;
  const std::array<PyObject*, 2> asked{logger, level};
  const interpreter::NativeScope native;
  const py::Ref is_on = py::Ref::steal(PyObject_Vectorcall(function.get(), asked.data(), asked.size(), nullptr));
  if (!is_on || is_on.get() == Py_True) return is_on ? 0 : -1;
  PyObject* answer = nullptr;
  if (ask(function, asked.data(), asked.size(), nullptr, &answer) < 0) return -1;
  return static_cast<int>(py::Ref::steal(answer).get() == Py_False);
}

int DeferredCalls::log(const char* method, PyObject* logger, PyObject* const* arguments, std::size_t count,
                       PyObject* names) {
  if (tracker_.native_calls().in_memoized_call()) return 0;
  tracker_.reads().record_identity(logger);
  if (const int status = is_off(method, logger, arguments, count); status != 0) return status;
  if (!require_program("logging")) return -1;
  py::Ref all = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; all && i < count; ++i) {
    const bool is_number = PyLong_Check(arguments[i]) || PyFloat_CheckExact(arguments[i]) || arguments[i] == Py_None;
    PyObject* item = is_number ? Py_NewRef(arguments[i]) : shown(arguments[i]).release();
    if (item == nullptr) return -1;
    PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), item);
  }
  const interpreter::NativeScope native;
  const py::Ref keywords = keywords_of(arguments, count, names);
  const py::Ref made = py::Ref::steal(all && keywords ? PyObject_CallMethod(effects_.get(), "deferred_record", "(OsOO)",
                                                                            logger, method, all.get(), keywords.get())
                                                      : nullptr);
  if (!made) return -1;
  const Py_ssize_t kept = PyLong_AsSsize_t(PyTuple_GET_ITEM(made.get(), 1));
  py::Ref rest = py::Ref::steal(PyTuple_GetSlice(all.get(), kept, static_cast<Py_ssize_t>(count)));
  return defer_constant(py::Ref::share(PyTuple_GET_ITEM(made.get(), 0)), std::move(rest)) ? 1 : -1;
}

/// Refuses the functions of `owner` that may change what others log, or log without a line of the program. Those that
/// only look are asked again at each call.
void DeferredCalls::add_rest(const py::Ref& owner, interpreter::TrackerOptions& options) {
  const py::Ref names = py::Ref::steal(owner ? PyObject_Dir(owner.get()) : PyList_New(0));
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), i));
    if (name == nullptr || name[0] == '_') continue;
    const py::Ref function = py::Ref::steal(PyObject_GetAttrString(owner.get(), name));
    if (!function || !PyFunction_Check(function.get())) {
      PyErr_Clear();
      continue;
    }
    if (std::ranges::find(kLogQueries, name) != kLogQueries.end()) {
      options.substitutes.try_emplace(function.get(), [this, function](PyObject* const* arguments, std::size_t count,
                                                                       PyObject* names, PyObject** result) {
        return ask(function, arguments, count, names, result);
      });
      continue;
    }
    options.substitutes.try_emplace(
        function.get(), [name = std::string(name)](PyObject* const*, std::size_t, PyObject*, PyObject**) {
          PyErr_Format(PyExc_NotImplementedError, "thunder.jit: logging: %s inside of the function", name.c_str());
          return -1;
        });
  }
}

/// Calls a function that asks a logger for its level, handlers or name, and guards the result.
int DeferredCalls::ask(const py::Ref& function, PyObject* const* arguments, std::size_t count, PyObject* names,
                       PyObject** result) {
  const interpreter::NativeScope native;
  const py::Ref partial = loaded_function("functools", "partial");
  const auto keywords = static_cast<std::size_t>(names == nullptr ? 0 : PyTuple_GET_SIZE(names));
  std::vector<PyObject*> all{function.get()};
  all.insert(all.end(), arguments, arguments + count + keywords);
  const py::Ref query = py::Ref::steal(PyObject_Vectorcall(partial.get(), all.data(), count + 1, names));
  *result = query ? PyObject_CallNoArgs(query.get()) : nullptr;
  if (*result == nullptr) return -1;
  tracker_.record_result(query.get(), interpreter::describe(function.get()), *result);
  return 1;
}

void DeferredCalls::add_substitutes(interpreter::TrackerOptions& options) {
  const py::Ref type = loaded_function("logging", "Logger");
  if (!type) return;
  const auto substitute = [&](const char* name, interpreter::TrackerOptions::Substitute run) {
    const py::Ref function = py::Ref::steal(PyObject_GetAttrString(type.get(), name));
    if (!function) return PyErr_Clear();
    options.substitute(function.get(), std::move(run));
  };
  for (const char* method : kLogMethods) {
    substitute(method,
               [this, method](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                 if (count < 2) return 0;
                 const int status = log(method, arguments[0], arguments + 1, count - 1, names);
                 if (status == 1) *result = Py_NewRef(Py_None);
                 return status;
               });
  }
  add_rest(type, options);
  add_rest(loaded_function("logging", "LoggerAdapter"), options);
  add_rest(loaded_function("logging", ""), options);
}

bool DeferredCalls::add_effects(interpreter::StructureBuilder& builder) {
  if (shows_tensors_ && !prints_tensors_alike()) {
    PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: torch.set_printoptions behind a print of a tensor");
    return false;
  }
  for (Call& call : calls_) {
    if (!fix_stream(call)) return false;
    if (!builder.add_call_effect(call.callable.get(), call.arguments.get(), call.keywords.get())) return false;
  }
  return true;
}

}  // namespace thunder::dispatch
