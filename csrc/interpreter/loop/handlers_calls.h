#pragma once

// Calls and functions.

#include <algorithm>

#include "interpreter/loop/exceptions.h"
#include "interpreter/loop/frames.h"
#include "interpreter/loop/machine.h"
#include "interpreter/loop/native_operation.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

#if PY_VERSION_HEX >= 0x030b0000
/// A frame for a call that needs nothing but its arguments (and defaults) copied; takes `callable` and `arguments`
/// over. Null, and nothing happened, when CPython shall bind the arguments.
THUNDER_INLINE Frame* enter_function(PyThreadState* tstate, PyObject* callable, PyObject** arguments,
                                     Py_ssize_t count) {
  if (!PyFunction_Check(callable)) return nullptr;
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const CodeData* data = CodeData::of(code);
  if (data == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const Py_ssize_t missing = code->co_argcount - count;
  PyObject* defaults = function->func_defaults;
  if (!data->is_simple_function() || function->vectorcall != plain_function_vectorcall || missing < 0 ||
      (missing > 0 && (defaults == nullptr || PyTuple_GET_SIZE(defaults) < missing)))
    return nullptr;
  Frame* frame = push_frame(tstate, function, code);
  if (frame == nullptr) return nullptr;
  PyObject** locals = frame->localsplus;
  Py_ssize_t filled = 0;
  for (; filled < count; ++filled) locals[filled] = arguments[filled];
  for (Py_ssize_t i = missing; i > 0; --i)
    locals[filled++] = Py_NewRef(PyTuple_GET_ITEM(defaults, PyTuple_GET_SIZE(defaults) - i));
  for (; filled < code->co_nlocalsplus; ++filled) locals[filled] = nullptr;
  return frame;
}
#else
/// 3.10 makes the frame of every call itself.
THUNDER_INLINE Frame* enter_function(PyThreadState*, PyObject*, PyObject**, Py_ssize_t) { return nullptr; }
#endif

/// Takes the call's values off the stack and pushes its result; null means an error.
THUNDER_INLINE Step finish_call(Machine& m, PyObject** base, PyObject* result) {
  while (m.sp > base) Py_XDECREF(*--m.sp);
  if (result == nullptr) return Step::kError;
  m.push(result);
  return eval_breaker_is_set(m.tstate) ? Step::kPending : Step::kNext;
}

/// Whether a call leaves arguments to their defaults.
THUNDER_INLINE bool uses_defaults(PyObject* callable, Py_ssize_t count) {
  if (!PyFunction_Check(callable)) return false;
  const auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  const auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  return function->func_kwdefaults != nullptr || code->co_argcount > count;
}

/// Calls what lies at `callable` with `count` values from `arguments` on, the last ones named by `m.keyword_names`;
/// `base` is the lowest slot that the call takes.
template <bool kObserved>
THUNDER_INLINE Step call_values(Machine& m, PyObject** base, PyObject* callable, PyObject** arguments,
                                Py_ssize_t count) {
  PyObject* names = m.keyword_names;
  m.keyword_names = nullptr;
  const Py_ssize_t positional = count - (names != nullptr ? PyTuple_GET_SIZE(names) : 0);
  if constexpr (kObserved) {
    PyObject* result = nullptr;
    if (!PyFunction_Check(callable))
      return finish_call(m, base, observed_call(*current_context, callable, arguments, positional, names));
    if (observed_enter(*current_context, callable, arguments, positional, names, &result))
      return finish_call(m, base, result);
  }
  // The observer is shown the values of defaults by the frame that CPython makes.
  if (names == nullptr && !(kObserved && uses_defaults(callable, count))) {
    m.callee = enter_function(m.tstate, callable, arguments, count);
    if (m.callee != nullptr) {
      if constexpr (kObserved) current_context->announced = nullptr;
      m.sp = base;
      return Step::kCall;
    }
  }
  PyObject* result = PyObject_Vectorcall(callable, arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  if constexpr (kObserved) current_context->announced = nullptr;
  return finish_call(m, base, result);
}

THUNDER_HANDLER(kw_names) {
  m.keyword_names = m.constant(argument);
  return Step::kNext;
}

/// `null, bound method` becomes `function, self`.
THUNDER_INLINE void unpack_method(PyObject** base) {
  PyObject* callable = base[1];
  if (base[0] != nullptr || Py_TYPE(callable) != &PyMethod_Type) return;
  base[0] = Py_NewRef(PyMethod_GET_FUNCTION(callable));
  base[1] = Py_NewRef(PyMethod_GET_SELF(callable));
  Py_DECREF(callable);
}

/// `method, self, arguments…` or `null, callable, arguments…`.
THUNDER_HANDLER(call) {
  PyObject** base = m.sp - argument - 2;
  unpack_method(base);
  const int is_method = base[0] != nullptr ? 1 : 0;
  return call_values<kObserved>(m, base, base[1 - is_method], base + 2 - is_method, argument + is_method);
}

/// 3.13: `method, self` or `callable, null`, then `argument` values.
template <bool kObserved>
THUNDER_INLINE Step call_self_above(Machine& m, int argument) {
  PyObject** base = m.sp - argument - 2;
  PyObject* callable = base[0];
  if (base[1] == nullptr && Py_TYPE(callable) == &PyMethod_Type) {
    base[0] = Py_NewRef(PyMethod_GET_FUNCTION(callable));
    base[1] = Py_NewRef(PyMethod_GET_SELF(callable));
    Py_DECREF(callable);
  }
  const int has_self = base[1] != nullptr ? 1 : 0;
  return call_values<kObserved>(m, base, base[0], base + 2 - has_self, argument + has_self);
}
THUNDER_HANDLER(call_with_self) { return call_self_above<kObserved>(m, argument); }

/// The names lie on top.
THUNDER_HANDLER(call_with_keywords) {
  PyObject* names = m.pop();
  m.keyword_names = names;
  const Step step = call_self_above<kObserved>(m, argument);
  Py_DECREF(names);
  return step;
}

/// `callable(*arguments, **keywords)`, both owned by the caller; null with an exception set.
template <bool kObserved>
THUNDER_INLINE PyObject* call_spread(PyObject* callable, PyObject* arguments, PyObject* keywords) {
  if constexpr (kObserved) return observed_call_spread(*current_context, callable, arguments, keywords);
  return PyObject_Call(callable, arguments, keywords);
}

/// Makes the star arguments an exact tuple and an exact dict; 0 or -1.
inline int normalize_spread(PyObject* callable, PyObject** arguments, PyObject** keywords) {
  if (*keywords != nullptr && !PyDict_CheckExact(*keywords)) {
    PyObject* dict = PyDict_New();
    if (dict == nullptr) return -1;
    if (_PyDict_MergeEx(dict, *keywords, 2) < 0) {
      Py_DECREF(dict);
      explain_keyword_error(callable, *keywords);
      return -1;
    }
    Py_SETREF(*keywords, dict);
  }
  if (PyTuple_CheckExact(*arguments)) return 0;
  if (check_star_arguments(callable, *arguments) < 0) return -1;
  PyObject* tuple = PySequence_Tuple(*arguments);
  if (tuple == nullptr) return -1;
  Py_SETREF(*arguments, tuple);
  return 0;
}

/// Two slots, one of them `callable`, and `arguments[, keywords]`.
template <bool kObserved>
THUNDER_INLINE Step call_with_spread(Machine& m, int argument, int callable_depth) {
  PyObject* keywords = (argument & 1) != 0 ? m.pop() : nullptr;
  PyObject* arguments = m.pop();
  PyObject* callable = m.peek(callable_depth);
  PyObject* result = nullptr;
  bool is_ready = true;
  if constexpr (kObserved) {
    is_ready = (PyTuple_CheckExact(arguments) || observed_spread(*m.observer, &arguments)) &&
               (keywords == nullptr || PyDict_CheckExact(keywords) || observed_get_iterator(*m.observer, keywords));
  }
  if (is_ready && normalize_spread(callable, &arguments, &keywords) == 0)
    result = call_spread<kObserved>(callable, arguments, keywords);
  Py_DECREF(arguments);
  Py_XDECREF(keywords);
  return finish_call(m, m.sp - 2, result);
}
THUNDER_HANDLER(call_function_ex) { return call_with_spread<kObserved>(m, argument, 1); }
/// 3.13: the null stands above the callable.
THUNDER_HANDLER(call_function_ex_null_above) { return call_with_spread<kObserved>(m, argument, 2); }

/// 3.13: one attribute at a time, under the function.
THUNDER_HANDLER(set_function_attribute) {
  PyObject* top = m.pop();
  auto* function = reinterpret_cast<PyFunctionObject*>(top);
  PyObject* value = m.pop();
  switch (argument) {
    case 1:
      Py_XSETREF(function->func_defaults, value);
      break;
    case 2:
      Py_XSETREF(function->func_kwdefaults, value);
      break;
    case 4:
      Py_XSETREF(function->func_annotations, value);
      break;
    default:
      Py_XSETREF(function->func_closure, value);
      break;
  }
  m.push(top);
  return Step::kNext;
}

#if PY_VERSION_HEX >= 0x030b0000
THUNDER_HANDLER(make_function) {
  PyObject* code = m.pop();
  auto* function = reinterpret_cast<PyFunctionObject*>(PyFunction_New(code, m.frame->f_globals));
  Py_DECREF(code);
  if (function == nullptr) return Step::kError;
  if ((argument & 8) != 0) function->func_closure = m.pop();
  if ((argument & 4) != 0) function->func_annotations = m.pop();
  if ((argument & 2) != 0) function->func_kwdefaults = m.pop();
  if ((argument & 1) != 0) function->func_defaults = m.pop();
  if (m.observer != nullptr) m.observer->made(reinterpret_cast<PyObject*>(function));
  m.push(reinterpret_cast<PyObject*>(function));
  return Step::kNext;
}

#endif

}  // namespace thunder::interpreter
