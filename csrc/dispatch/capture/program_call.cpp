#include "dispatch/capture/program_call.h"

#include <string>
#include <vector>

#include "dispatch/call/overrides.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/backward_module.h"
#include "dispatch/python/source_files.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/python/memoized.h"
#include "interpreter/python/object_parts.h"

namespace thunder::dispatch {
namespace {

/// The code of a function, a method, or a module's `forward`; null: there is none.
py::Ref code_of(PyObject* callable) {
  py::Ref function = py::Ref::share(callable);
  if (!PyFunction_Check(callable)) {
    const char* attribute = PyMethod_Check(callable) ? "__func__" : "forward";
    function = py::Ref::steal(PyObject_GetAttrString(callable, attribute));
    if (function && PyMethod_Check(function.get())) function = py::Ref::share(PyMethod_GET_FUNCTION(function.get()));
    PyErr_Clear();
  }
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  return py::Ref::share(PyFunction_GET_CODE(function.get()));
}

/// How the callable's own signature names its positional arguments, for messages and input names.
std::vector<std::string> parameter_names(PyObject* callable) {
  std::vector<std::string> names;
  const py::Ref found = code_of(callable);
  if (!found) return names;
  auto* code = reinterpret_cast<PyCodeObject*>(found.get());
  const py::Ref variables = py::Ref::steal(PyCode_GetVarnames(code));
  for (int i = PyFunction_Check(callable) ? 0 : 1; variables && i < code->co_argcount; ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(variables.get(), i));
    names.emplace_back(name == nullptr ? "" : name);
  }
  return names;
}

}  // namespace

bool ProgramCall::admit_arguments() {
  const bool is_function = PyFunction_Check(callable_);
  tracker_.admit_constant(callable_, is_function ? interpreter::describe(callable_) : "self");
  if (module_ != callable_ && has_overrides(module_)) tracker_.admit_constant(module_, "module");
  const std::vector<std::string> names = parameter_names(callable_);
  positional_ = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments_.positional)));
  keywords_ = py::Ref::steal(PyDict_New());
  if (!positional_ || !keywords_) return false;
  for (std::size_t i = 0; i < arguments_.positional; ++i) {
    const auto index = static_cast<Py_ssize_t>(i);
    const std::string name = i < names.size() ? names[i] : "args[" + std::to_string(i) + "]";
    PyObject* seen = tracker_.admit_argument(index, name, arguments_.values[i]);
    if (seen == nullptr) return false;
    PyTuple_SET_ITEM(positional_.get(), index, seen);
  }
  const Py_ssize_t count = arguments_.names == nullptr ? 0 : PyTuple_GET_SIZE(arguments_.names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(arguments_.names, i);
    PyObject* value = arguments_.values[arguments_.positional + static_cast<std::size_t>(i)];
    const py::Ref seen = py::Ref::steal(tracker_.admit_keyword(name, value));
    if (!seen || PyDict_SetItem(keywords_.get(), name, seen.get()) < 0) return false;
  }
  return true;
}

py::Ref ProgramCall::run() {
  const py::Ref called = interpreter::innermost_callable(callable_);
  if (called && interpreter::is_memoized(called.get())) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: the function keeps its results (functools.lru_cache); compile what it caches: "
                    "lru_cache(thunder.jit(f))");
    return nullptr;
  }
  const py::Ref code = code_of(callable_);
  const int flags = code ? reinterpret_cast<const PyCodeObject*>(code.get())->co_flags : 0;
  if ((flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: what a coroutine function gives is run by an event loop; compile what it calls");
    return nullptr;
  }
  const py::Ref apply = loaded_function("torch.autograd", "Function.apply.__func__");
  const bool is_apply = PyMethod_Check(callable_) && PyMethod_GET_FUNCTION(callable_) == apply.get();
  if (is_apply) {
    const py::Ref in_python = python_backward_function("call");
    const py::Ref arguments = py::Ref::steal(PyTuple_Pack(3, callable_, positional_.get(), keywords_.get()));
    if (!arguments) return nullptr;
    return py::Ref::steal(interpreter::interpret(in_python.get(), arguments.get(), nullptr, &tracker_));
  }
  py::Ref function = py::Ref::share(callable_);
  if (!interpreter::is_called_in_python(callable_) || interpreter::is_partial(callable_)) {
    // Code in C is observed where a function in Python calls it, as is what a partial function holds.
    tracker_.admit(callable_);
    function = interpreter::interpreted_call(callable_);
    if (!function) return nullptr;
  }
  return py::Ref::steal(interpreter::interpret(function.get(), positional_.get(), keywords_.get(), &tracker_));
}

ir::SourceLocation ProgramCall::definition(ir::TraceContext& context) const {
  const py::SavedError pending;
  const py::Ref found = code_of(callable_);
  if (!found) return {};
  auto* code = reinterpret_cast<PyCodeObject*>(found.get());
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) {
    PyErr_Clear();
    return {};
  }
  if (is_library_file(file)) return {};
  return {context.intern(file), code->co_firstlineno};
}

}  // namespace thunder::dispatch
