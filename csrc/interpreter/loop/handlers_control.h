#pragma once

// Jumps, iteration, generators, calls that leave or enter frames.

#include "interpreter/loop/handlers_operators.h"
#include "interpreter/loop/iteration.h"
#include "interpreter/loop/machine.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

/// An instruction that does not occur, or only as part of another.
THUNDER_HANDLER(impossible) {
  PyErr_SetString(PyExc_SystemError, "thunder.interpreter: unexpected instruction");
  return Step::kError;
}

/// Whoever resumes a generator inside `yield from` or `await` must not run signal handlers there.
THUNDER_HANDLER(resume) { return (argument & 3) < 2 && eval_breaker_is_set(m.tstate) ? Step::kPending : Step::kNext; }

THUNDER_HANDLER(jump_forward) {
  m.pc += argument;
  return Step::kNext;
}
THUNDER_HANDLER(jump_backward) {
  m.pc -= argument;
  return eval_breaker_is_set(m.tstate) ? Step::kPending : Step::kNext;
}
THUNDER_HANDLER(jump_backward_no_interrupt) {
  m.pc -= argument;
  return Step::kNext;
}

/// Pops a condition and jumps by `offset` if its truth is `wanted`.
template <bool kObserved>
THUNDER_INLINE Step jump_if(Machine& m, std::ptrdiff_t offset, int wanted) {
  PyObject* condition = m.pop();
  const int value = truth<kObserved>(m, condition);
  Py_DECREF(condition);
  if (value < 0) return Step::kError;
  if (value == wanted) m.pc += offset;
  return Step::kNext;
}
THUNDER_INLINE Step jump_if_none(Machine& m, std::ptrdiff_t offset, bool wanted) {
  PyObject* value = m.pop();
  if ((value == Py_None) == wanted) m.pc += offset;
  Py_DECREF(value);
  return Step::kNext;
}
/// A jump backwards looks at the eval breaker like JUMP_BACKWARD.
THUNDER_INLINE Step after_loop_jump(Machine& m, Step step) {
  return step == Step::kNext && eval_breaker_is_set(m.tstate) ? Step::kPending : step;
}
THUNDER_HANDLER(pop_jump_forward_if_true) { return jump_if<kObserved>(m, argument, 1); }
THUNDER_HANDLER(pop_jump_forward_if_false) { return jump_if<kObserved>(m, argument, 0); }
THUNDER_HANDLER(pop_jump_forward_if_none) { return jump_if_none(m, argument, true); }
THUNDER_HANDLER(pop_jump_forward_if_not_none) { return jump_if_none(m, argument, false); }
THUNDER_HANDLER(pop_jump_backward_if_true) { return after_loop_jump(m, jump_if<kObserved>(m, -argument, 1)); }
THUNDER_HANDLER(pop_jump_backward_if_false) { return after_loop_jump(m, jump_if<kObserved>(m, -argument, 0)); }
THUNDER_HANDLER(pop_jump_backward_if_none) { return after_loop_jump(m, jump_if_none(m, -argument, true)); }
THUNDER_HANDLER(pop_jump_backward_if_not_none) { return after_loop_jump(m, jump_if_none(m, -argument, false)); }

template <bool kObserved>
THUNDER_INLINE Step jump_if_or_pop(Machine& m, int argument, int wanted) {
  const int value = truth<kObserved>(m, m.top());
  if (value < 0) return Step::kError;
  if (value == wanted)
    m.pc += argument;
  else
    Py_DECREF(m.pop());
  return Step::kNext;
}
THUNDER_HANDLER(jump_if_true_or_pop) { return jump_if_or_pop<kObserved>(m, argument, 1); }
THUNDER_HANDLER(jump_if_false_or_pop) { return jump_if_or_pop<kObserved>(m, argument, 0); }

THUNDER_HANDLER(get_iter) {
  if constexpr (kObserved)
    if (!(PyTuple_CheckExact(m.top()) ? observed_spread(*m.observer, m.sp - 1)
                                      : observed_get_iterator(*m.observer, m.top())))
      return Step::kError;
  return m.replace_top(PyObject_GetIter(m.top()));
}

/// The next value on top of the iterator; null at its end, with an exception on failure.
template <bool kObserved>
THUNDER_INLINE PyObject* advance(Machine& m) {
  PyObject* iterator = m.top();
  PyObject* value = Py_TYPE(iterator)->tp_iternext(iterator);
  if constexpr (kObserved)
    if (value != nullptr) value = observed_next_value(*m.observer, iterator, value);
  if (value == nullptr && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return value;
}

/// At its end, jumps past the `skipped` instructions that clean up after a generator in CPython's own loop.
template <bool kObserved>
THUNDER_INLINE Step iterate(Machine& m, int argument, int skipped) {
  PyObject* value = advance<kObserved>(m);
  if (value != nullptr) {
    m.push(value);
    return Step::kNext;
  }
  if (PyErr_Occurred()) return Step::kError;
  Py_DECREF(m.pop());
  m.pc += argument + skipped;
  return Step::kNext;
}
THUNDER_HANDLER(for_iter) { return iterate<kObserved>(m, argument, 0); }
THUNDER_HANDLER(for_iter_end_for) { return iterate<kObserved>(m, argument, 1); }
THUNDER_HANDLER(for_iter_end_for_pop) { return iterate<kObserved>(m, argument, 2); }

THUNDER_HANDLER(pop_two) {
  m.drop(2);
  return Step::kNext;
}

THUNDER_HANDLER(return_value) {
  m.result = m.pop();
  return Step::kReturn;
}

THUNDER_HANDLER(return_const) {
  m.result = Py_NewRef(m.constant(argument));
  return Step::kReturn;
}

THUNDER_HANDLER(yield_value) {
  m.result = m.pop();
  return Step::kYield;
}

THUNDER_HANDLER(get_yield_from_iter) {
  PyObject* iterable = m.top();
  if (PyCoro_CheckExact(iterable)) {
    if ((code_of(m.frame)->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) != 0) return Step::kNext;
    PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return Step::kError;
  }
  if (PyGen_CheckExact(iterable)) return Step::kNext;
  return get_iter<kObserved>(m, 0);
}

THUNDER_HANDLER(get_awaitable) { return m.replace_top(get_awaitable(m.top(), argument)); }
THUNDER_HANDLER(get_aiter) { return m.replace_top(get_async_iterator(m.top())); }
THUNDER_HANDLER(get_anext) { return m.push_result(get_async_next(m.top())); }
#if PY_VERSION_HEX < 0x030c0000
THUNDER_HANDLER(async_gen_wrap) { return m.replace_top(wrap_async_value(m.top())); }
#endif

/// Sends the topmost value to the receiver below it, whose result takes its place.
THUNDER_INLINE PySendResult send_value(Machine& m, PyObject** result) {
  PyObject* value = m.pop();
  const PySendResult status = PyIter_Send(m.top(), value, result);
  Py_DECREF(value);
  return status;
}

/// `receiver, value` becomes `receiver, yielded`, or the receiver's result and a jump.
THUNDER_HANDLER(send) {
  PyObject* result = nullptr;
  switch (send_value(m, &result)) {
    case PYGEN_NEXT:
      m.push(result);
      return Step::kNext;
    case PYGEN_RETURN:
      Py_DECREF(m.top());
      m.top() = result;
      m.pc += argument;
      return Step::kNext;
    case PYGEN_ERROR:
      break;
  }
  return Step::kError;
}

/// 3.12: the receiver stays below its result, until END_SEND.
THUNDER_HANDLER(send_keeping_receiver) {
  PyObject* result = nullptr;
  const PySendResult status = send_value(m, &result);
  if (status == PYGEN_ERROR) return Step::kError;
  m.push(result);
  if (status == PYGEN_RETURN) m.pc += argument;
  return Step::kNext;
}

THUNDER_HANDLER(end_send) {
  PyObject* value = m.pop();
  Py_DECREF(m.top());
  m.top() = value;
  return Step::kNext;
}

THUNDER_HANDLER(to_bool) {
  const int value = truth<kObserved>(m, m.top());
  return m.replace_top(value < 0 ? nullptr : Py_NewRef(value != 0 ? Py_True : Py_False));
}

}  // namespace thunder::interpreter
