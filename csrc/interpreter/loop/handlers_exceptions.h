#pragma once

// Exceptions and context managers.

#include "interpreter/loop/exceptions.h"
#include "interpreter/loop/iteration.h"
#include "interpreter/loop/machine.h"
#include "interpreter/loop/native_operation.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

THUNDER_HANDLER(load_assertion_error) {
  m.push(Py_NewRef(PyExc_AssertionError));
  return Step::kNext;
}

THUNDER_HANDLER(raise_varargs) {
  PyObject* cause = argument > 1 ? m.pop() : nullptr;
  PyObject* exception = argument > 0 ? m.pop() : nullptr;
  return raise_exception(m.tstate, exception, cause) ? Step::kUnwind : Step::kError;
}

THUNDER_HANDLER(check_exc_match) {
  PyObject* kind = m.pop();
  const int status = check_exception_kind(kind);
  const int matches = status == 0 ? PyErr_GivenExceptionMatches(m.top(), kind) : 0;
  Py_DECREF(kind);
  if (status < 0) return Step::kError;
  m.push(Py_NewRef(matches != 0 ? Py_True : Py_False));
  return Step::kNext;
}

#if PY_VERSION_HEX >= 0x030b0000

THUNDER_HANDLER(push_exc_info) {
  PyObject* exception = m.top();
  _PyErr_StackItem* item = m.tstate->exc_info;
  m.top() = item->exc_value != nullptr ? item->exc_value : Py_NewRef(Py_None);
  m.push(Py_NewRef(exception));
  item->exc_value = exception;
  return Step::kNext;
}

THUNDER_HANDLER(pop_except) {
  _PyErr_StackItem* item = m.tstate->exc_info;
  PyObject* old = item->exc_value;
  item->exc_value = m.pop();
  // Since 3.13 only null means that nothing is handled.
  if (item->exc_value == Py_None) Py_CLEAR(item->exc_value);
  Py_XDECREF(old);
  return Step::kNext;
}

/// With an argument, the exception counts as raised where it was raised first: that offset lies on the stack.
THUNDER_HANDLER(reraise) {
  if (argument != 0) {
    PyObject* last_instruction = m.peek(argument + 1);
    if (!PyLong_Check(last_instruction)) {
      PyErr_SetString(PyExc_SystemError, "lasti is not an int");
      return Step::kError;
    }
    m.unwind_offset = static_cast<int>(current_offset(m));
    set_current_offset(m, PyLong_AsLong(last_instruction));
  }
  restore_exception(m.pop());
  return Step::kUnwind;
}

THUNDER_HANDLER(check_eg_match) {
  PyObject* kind = m.pop();
  PyObject* match = nullptr;
  PyObject* rest = nullptr;
  const bool done = check_exception_group_kind(kind) == 0 && match_exception_group(m.top(), kind, &match, &rest) == 0;
  Py_DECREF(kind);
  if (!done) return Step::kError;
  if (match == Py_None) {
    Py_DECREF(rest);
  } else {
    Py_DECREF(m.top());
    m.top() = rest;
    PyErr_SetHandledException(match);
  }
  m.push(match);
  return Step::kNext;
}

THUNDER_HANDLER(prep_reraise_star) { return replace_two(m, prepare_reraise_star(m.peek(2), m.top())); }

/// `exit, lasti, previous, exception`: pushes what `exit(type, exception, traceback)` returns.
THUNDER_HANDLER(with_except_start) {
  PyObject* exception = m.top();
  PyObject* traceback = PyException_GetTraceback(exception);
  PyObject* shown = traceback != nullptr ? traceback : Py_None;
  PyObject* arguments[] = {nullptr, PyExceptionInstance_Class(exception), exception, shown};
  PyObject* result = PyObject_Vectorcall(m.peek(4), arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_XDECREF(traceback);
  return m.push_result(result);
}

#endif

#if PY_VERSION_HEX >= 0x030c0000
/// `receiver, sent, exception` after a `throw` into `yield from`: a StopIteration's value is the expression's.
THUNDER_HANDLER(cleanup_throw) {
  PyObject* exception = m.top();
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    restore_exception(Py_NewRef(exception));
    return Step::kUnwind;
  }
  PyObject* value = Py_NewRef(reinterpret_cast<PyStopIterationObject*>(exception)->value);
  m.drop(3);
  m.push(Py_NewRef(Py_None));
  m.push(value);
  return Step::kNext;
}
#endif

/// `manager` becomes `exit, entered`.
template <bool kObserved>
THUNDER_INLINE Step enter_context(Machine& m, bool is_async) {
  PyObject* manager = m.top();
  if constexpr (kObserved) {
    if (!observed_look_up(*m.observer, manager, "__enter__ __exit__ __aenter__ __aexit__")) return Step::kError;
  }
  PyObject* enter = lookup_context_method(manager, is_async, false);
  if (enter == nullptr) return Step::kError;
  PyObject* exit = lookup_context_method(manager, is_async, true);
  if (exit == nullptr) {
    Py_DECREF(enter);
    return Step::kError;
  }
  m.top() = exit;
  Py_DECREF(manager);
  PyObject* entered = PyObject_CallNoArgs(enter);
  Py_DECREF(enter);
  return m.push_result(entered);
}
THUNDER_HANDLER(before_with) { return enter_context<kObserved>(m, false); }
THUNDER_HANDLER(before_async_with) { return enter_context<kObserved>(m, true); }

THUNDER_HANDLER(end_async_for) {
  PyObject* exception = m.pop();
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    Py_DECREF(exception);
    Py_DECREF(m.pop());
    return Step::kNext;
  }
  restore_exception(exception);
  return Step::kUnwind;
}

}  // namespace thunder::interpreter
