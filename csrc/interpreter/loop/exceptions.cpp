#include "interpreter/loop/exceptions.h"

#include "interpreter/loop/context.h"
#include "interpreter/loop/native_operation.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

constexpr const char* kCannotCatch = "catching classes that do not inherit from BaseException is not allowed";

/// The exception that `raise` of an instance or a class means, or null with an exception set.
py::Ref make_exception(PyObject* kind) {
  if (PyExceptionInstance_Check(kind)) return py::Ref::share(kind);
  if (!PyExceptionClass_Check(kind)) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return {};
  }
  py::Ref value = py::Ref::steal(PyObject_CallNoArgs(kind));
  if (value && !PyExceptionInstance_Check(value.get())) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", kind,
                 Py_TYPE(value.get()));
    return {};
  }
  return value;
}

bool raise_again(PyThreadState* tstate) {
  const _PyErr_StackItem* item = tstate->exc_info;
  while ((item->exc_value == nullptr || item->exc_value == Py_None) && item->previous_item != nullptr)
    item = item->previous_item;
  PyObject* value = item->exc_value;
  if (value == nullptr || value == Py_None) {
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return false;
  }
#if PY_VERSION_HEX >= 0x030b0000
  restore_exception(Py_NewRef(value));
#else
  PyErr_Restore(Py_XNewRef(item->exc_type), Py_NewRef(value), Py_XNewRef(item->exc_traceback));
#endif
  return true;
}

/// Sets `exception.__cause__`; false with an exception set.
bool set_cause(PyObject* exception, PyObject* cause) {
  py::Ref value;
  if (PyExceptionClass_Check(cause)) {
    value = py::Ref::steal(PyObject_CallNoArgs(cause));
    if (!value) return false;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyExceptionInstance_Check(value.get())) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", cause,
                   Py_TYPE(value.get()));
      return false;
    }
#endif
  } else if (PyExceptionInstance_Check(cause)) {
    value = py::Ref::share(cause);
  } else if (cause != Py_None) {
    PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
    return false;
  }
  PyException_SetCause(exception, value.release());
  return true;
}

}  // namespace

bool raise_exception(PyThreadState* tstate, PyObject* exception, PyObject* cause) {
  const py::Ref owned_exception = py::Ref::steal(exception);
  const py::Ref owned_cause = py::Ref::steal(cause);
  if (exception == nullptr) return raise_again(tstate);
  const py::Ref value = make_exception(exception);
  if (value && (cause == nullptr || set_cause(value.get(), cause)))
    PyErr_SetObject(PyExceptionInstance_Class(value.get()), value.get());
  return false;
}

void raise_name_error(PyObject* name) {
  PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", PyUnicode_AsUTF8(name));
  py::Ref exception = py::Ref::steal(take_exception());
  if (PyErr_GivenExceptionMatches(exception.get(), PyExc_NameError) &&
      PyObject_SetAttrString(exception.get(), "name", name) < 0)
    PyErr_Clear();
  restore_exception(exception.release());
}

void raise_unbound_free(PyObject* name) {
#if PY_VERSION_HEX >= 0x030b0000
  PyErr_Format(PyExc_NameError,
               "cannot access free variable '%s' where it is not associated with a value in enclosing scope",
               PyUnicode_AsUTF8(name));
#else
  PyErr_Format(PyExc_NameError, "free variable '%.200s' referenced before assignment in enclosing scope",
               PyUnicode_AsUTF8(name));
#endif
  py::Ref exception = py::Ref::steal(take_exception());
  if (PyObject_SetAttrString(exception.get(), "name", name) < 0) PyErr_Clear();
  restore_exception(exception.release());
}

void raise_unbound(PyCodeObject* code, int index) {
#if PY_VERSION_HEX >= 0x030b0000
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, index);
#if PY_VERSION_HEX >= 0x030c0000
  const bool is_free = index >= code->co_nlocalsplus - code->co_nfreevars;
#else
  const bool is_free = index >= code->co_nplaincellvars + code->co_nlocals;
#endif
  if (is_free) return raise_unbound_free(name);
  PyErr_Format(PyExc_UnboundLocalError, "cannot access local variable '%s' where it is not associated with a value",
               PyUnicode_AsUTF8(name));
#else
  const Py_ssize_t cells = PyTuple_GET_SIZE(code->co_cellvars);
  const Py_ssize_t cell = index - code->co_nlocals;
  if (cell >= cells) return raise_unbound_free(PyTuple_GET_ITEM(code->co_freevars, cell - cells));
  PyObject* name = cell >= 0 ? PyTuple_GET_ITEM(code->co_cellvars, cell) : PyTuple_GET_ITEM(code->co_varnames, index);
  PyErr_Format(PyExc_UnboundLocalError, "local variable '%.200s' referenced before assignment", PyUnicode_AsUTF8(name));
#endif
}

int check_exception_kind(PyObject* kind) {
  const Py_ssize_t count = PyTuple_Check(kind) ? PyTuple_GET_SIZE(kind) : 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_Check(kind) ? PyTuple_GET_ITEM(kind, i) : kind;
    if (PyExceptionClass_Check(one)) continue;
    PyErr_SetString(PyExc_TypeError, kCannotCatch);
    return -1;
  }
  return 0;
}

#if PY_VERSION_HEX >= 0x030b0000

int check_exception_group_kind(PyObject* kind) {
  if (check_exception_kind(kind) < 0) return -1;
  const Py_ssize_t count = PyTuple_Check(kind) ? PyTuple_GET_SIZE(kind) : 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_Check(kind) ? PyTuple_GET_ITEM(kind, i) : kind;
    const int is_group = PyObject_IsSubclass(one, PyExc_BaseExceptionGroup);
    if (is_group == 0) continue;
    if (is_group > 0)
      PyErr_SetString(PyExc_TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.");
    return -1;
  }
  return 0;
}

int match_exception_group(PyObject* exception, PyObject* kind, PyObject** match, PyObject** rest) {
  *match = nullptr;
  *rest = nullptr;
  const bool is_group = PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup)) != 0;
  if (exception != Py_None && PyErr_GivenExceptionMatches(exception, kind)) {
    if (is_group) {
      *match = Py_NewRef(exception);
    } else {
      *match = PyObject_CallFunction(PyExc_BaseExceptionGroup, "s(O)", "", exception);
      if (*match == nullptr) return -1;
    }
    *rest = Py_NewRef(Py_None);
    return 0;
  }
  if (exception == Py_None || !is_group) {
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(Py_None);
    return 0;
  }
  const py::Ref pair = py::Ref::steal(PyObject_CallMethod(exception, "split", "(O)", kind));
  if (!pair) return -1;
  if (!PyTuple_CheckExact(pair.get()) || PyTuple_GET_SIZE(pair.get()) < 2) {
    PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, got %.200s", Py_TYPE(exception)->tp_name,
                 Py_TYPE(pair.get())->tp_name);
    return -1;
  }
  *match = Py_NewRef(PyTuple_GET_ITEM(pair.get(), 0));
  *rest = Py_NewRef(PyTuple_GET_ITEM(pair.get(), 1));
  return 0;
}

#endif

void explain_keyword_error(PyObject* callable, PyObject* mapping) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    const py::Ref text = py::Ref::steal(_PyObject_FunctionStr(callable));
    if (text)
      PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", text.get(),
                   Py_TYPE(mapping)->tp_name);
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return;
#if PY_VERSION_HEX >= 0x030c0000
  py::Ref exception = py::Ref::steal(PyErr_GetRaisedException());
  PyObject* arguments = reinterpret_cast<PyBaseExceptionObject*>(exception.get())->args;
  if (arguments != nullptr && PyTuple_Check(arguments) && PyTuple_GET_SIZE(arguments) == 1) {
    const py::Ref text = py::Ref::steal(_PyObject_FunctionStr(callable));
    if (text)
      PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text.get(),
                   PyTuple_GET_ITEM(arguments, 0));
    return;
  }
  PyErr_SetRaisedException(exception.release());
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  // A KeyError that the merge itself raised is not normalized: its value is still the tuple of its arguments.
  if (value == nullptr || !PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 1)
    return PyErr_Restore(type, value, traceback);
  const py::Ref text = py::Ref::steal(_PyObject_FunctionStr(callable));
  if (text)
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text.get(),
                 PyTuple_GET_ITEM(value, 0));
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
#endif
}

int check_star_arguments(PyObject* callable, PyObject* arguments) {
  if (Py_TYPE(arguments)->tp_iter != nullptr || PySequence_Check(arguments)) return 0;
  PyErr_Clear();
  const py::Ref text = py::Ref::steal(_PyObject_FunctionStr(callable));
  if (text)
    PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text.get(),
                 Py_TYPE(arguments)->tp_name);
  return -1;
}

namespace {

int run_pending(PyThreadState* tstate) {
#if PY_VERSION_HEX >= 0x030d0000
  return _Py_HandlePending(tstate);
#else
  if (PyErr_CheckSignals() < 0) return -1;
  if (!eval_breaker_is_set(tstate)) return 0;
  // The rest (pending calls, an exception from another thread, handing over the GIL) is done by CPython's own loop when
  // it enters a function.
  const py::Ref result = py::Ref::steal(PyObject_CallNoArgs(empty_function));
  if (result) return 0;
  py::Ref exception = py::Ref::steal(take_exception());
  const py::Ref traceback = py::Ref::steal(PyException_GetTraceback(exception.get()));
  const py::Ref outer = py::Ref::steal(traceback ? PyObject_GetAttrString(traceback.get(), "tb_next") : nullptr);
  if (outer) PyException_SetTraceback(exception.get(), outer.get());
  restore_exception(exception.release());
  return -1;
#endif
}

}  // namespace

int handle_pending(PyThreadState* tstate) {
  Observer* const observer = current_context == nullptr ? nullptr : current_context->observer;
  // Handlers of signals are no part of the program.
  const NativeScope native;
  const int status = run_pending(tstate);
  if (status < 0 && observer != nullptr) observer->interrupted();
  return status;
}

}  // namespace thunder::interpreter
