#pragma once

// Building, extending and unpacking containers.

#include "interpreter/loop/exceptions.h"
#include "interpreter/loop/iteration.h"
#include "interpreter/loop/machine.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

THUNDER_HANDLER(build_tuple) {
  PyObject* tuple = PyTuple_New(argument);
  if (tuple == nullptr) return Step::kError;
  m.sp -= argument;
  for (int i = 0; i < argument; ++i) PyTuple_SET_ITEM(tuple, i, m.sp[i]);
  m.push(tuple);
  return Step::kNext;
}

THUNDER_HANDLER(build_list) {
  PyObject* list = PyList_New(argument);
  if (list == nullptr) return Step::kError;
  m.sp -= argument;
  for (int i = 0; i < argument; ++i) PyList_SET_ITEM(list, i, m.sp[i]);
  m.push(list);
  return Step::kNext;
}

THUNDER_HANDLER(build_set) {
  PyObject* set = PySet_New(nullptr);
  if (set == nullptr) return Step::kError;
  int status = 0;
  for (int i = argument; i > 0 && status == 0; --i) {
    if constexpr (kObserved) observed_key(*m.observer, m.peek(i), set);
    status = PySet_Add(set, m.peek(i));
  }
  m.drop(argument);
  if (status == 0) return m.push_result(set);
  Py_DECREF(set);
  return Step::kError;
}

THUNDER_HANDLER(build_map) {
  PyObject* map = PyDict_New();
  if (map == nullptr) return Step::kError;
  int status = 0;
  for (int i = argument; i > 0 && status == 0; --i) {
    if constexpr (kObserved) observed_key(*m.observer, m.peek(2 * i), map);
    status = PyDict_SetItem(map, m.peek(2 * i), m.peek(2 * i - 1));
  }
  if (status != 0) {
    Py_DECREF(map);
    return Step::kError;
  }
  m.drop(2 * argument);
  return m.push_result(map);
}

THUNDER_HANDLER(build_const_key_map) {
  PyObject* keys = m.top();
  PyObject* map = PyDict_New();
  if (map == nullptr) return Step::kError;
  int status = 0;
  for (int i = 0; i < argument && status == 0; ++i)
    status = PyDict_SetItem(map, PyTuple_GET_ITEM(keys, i), m.peek(1 + argument - i));
  if (status != 0) {
    Py_DECREF(map);
    return Step::kError;
  }
  m.drop(argument + 1);
  return m.push_result(map);
}

THUNDER_HANDLER(build_string) {
  static PyObject* empty = PyUnicode_FromString("");
  PyObject* text = _PyUnicode_JoinArray(empty, m.sp - argument, argument);
  if (text == nullptr) return Step::kError;
  m.drop(argument);
  return m.push_result(text);
}

THUNDER_HANDLER(list_append) {
  PyObject* value = m.pop();
  const int status = PyList_Append(m.peek(argument), value);
  Py_DECREF(value);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(set_add) {
  PyObject* value = m.pop();
  if constexpr (kObserved) observed_key(*m.observer, value, m.peek(argument));
  const int status = PySet_Add(m.peek(argument), value);
  Py_DECREF(value);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(map_add) {
  if constexpr (kObserved) observed_key(*m.observer, m.peek(2), m.peek(argument + 2));
  const int status = PyDict_SetItem(m.peek(argument + 2), m.peek(2), m.top());
  m.drop(2);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(list_extend) {
  PyObject* iterable = m.pop();
  bool allowed = true;
  if constexpr (kObserved) allowed = observed_spread(*m.observer, &iterable);
  PyObject* done = allowed ? _PyList_Extend(reinterpret_cast<PyListObject*>(m.peek(argument)), iterable) : nullptr;
  if (done == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(iterable)->tp_iter == nullptr &&
      !PySequence_Check(iterable))
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(iterable)->tp_name);
  Py_XDECREF(done);
  Py_DECREF(iterable);
  return done != nullptr ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(list_to_tuple) { return m.replace_top(PyList_AsTuple(m.top())); }

THUNDER_HANDLER(set_update) {
  PyObject* iterable = m.pop();
  bool done = true;
  if constexpr (kObserved) {
    observed_key(*m.observer, iterable, m.peek(argument));
    done = observed_get_iterator(*m.observer, iterable);
  }
  done = done && _PySet_Update(m.peek(argument), iterable) >= 0;
  Py_DECREF(iterable);
  return done ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(dict_update) {
  PyObject* mapping = m.pop();
  bool done = true;
  if constexpr (kObserved) done = observed_spread_mapping(*m.observer, &mapping);
  if (done && PyDict_Update(m.peek(argument), mapping) < 0) {
    done = false;
    if (PyErr_ExceptionMatches(PyExc_AttributeError))
      PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping)->tp_name);
  }
  Py_DECREF(mapping);
  return done ? Step::kNext : Step::kError;
}

/// Keyword arguments of a call: a repeated key is an error; the callable lies `callable_depth` above the dict.
template <bool kObserved>
THUNDER_INLINE Step merge_keywords(Machine& m, int argument, int callable_depth) {
  PyObject* mapping = m.pop();
  bool done = true;
  if constexpr (kObserved) done = observed_spread_mapping(*m.observer, &mapping);
  if (done && _PyDict_MergeEx(m.peek(argument), mapping, 2) < 0) {
    done = false;
    explain_keyword_error(m.peek(callable_depth + argument), mapping);
  }
  Py_DECREF(mapping);
  return done ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(dict_merge) { return merge_keywords<kObserved>(m, argument, 2); }
/// 3.13: a null or self lies between the callable and its arguments.
THUNDER_HANDLER(dict_merge_self) { return merge_keywords<kObserved>(m, argument, 3); }

THUNDER_HANDLER(unpack_sequence) {
  PyObject* sequence = m.pop();
  Step step = Step::kNext;
  const bool is_tuple = PyTuple_CheckExact(sequence);
  if (!kObserved && (is_tuple || PyList_CheckExact(sequence)) && PySequence_Fast_GET_SIZE(sequence) == argument) {
    PyObject** items = PySequence_Fast_ITEMS(sequence);
    for (int i = argument; i-- > 0;) m.push(Py_NewRef(items[i]));
  } else if (unpack_iterable(&sequence, argument, -1, m.sp + argument, kObserved ? m.observer : nullptr)) {
    m.sp += argument;
  } else {
    step = Step::kError;
  }
  Py_DECREF(sequence);
  return step;
}

THUNDER_HANDLER(unpack_ex) {
  const int before = argument & 0xFF;
  const int after = argument >> 8;
  PyObject* sequence = m.pop();
  const int total = before + 1 + after;
  const bool done = unpack_iterable(&sequence, before, after, m.sp + total, kObserved ? m.observer : nullptr);
  Py_DECREF(sequence);
  if (!done) return Step::kError;
  m.sp += total;
  return Step::kNext;
}

}  // namespace thunder::interpreter
