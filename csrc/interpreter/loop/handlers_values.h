#pragma once

// Constants, locals, names, globals and cells.

#include "interpreter/loop/exceptions.h"
#include "interpreter/loop/machine.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

THUNDER_HANDLER(nop) { return Step::kNext; }

THUNDER_HANDLER(pop_top) {
  Py_DECREF(m.pop());
  return Step::kNext;
}

THUNDER_HANDLER(push_null) {
  m.push(nullptr);
  return Step::kNext;
}

THUNDER_HANDLER(copy) {
  m.push(Py_NewRef(m.peek(argument)));
  return Step::kNext;
}

THUNDER_HANDLER(swap) {
  PyObject* top = m.top();
  m.top() = m.peek(argument);
  m.peek(argument) = top;
  return Step::kNext;
}

THUNDER_HANDLER(load_const) {
  m.push(Py_NewRef(m.constant(argument)));
  return Step::kNext;
}

THUNDER_HANDLER(load_fast) {
  PyObject* value = m.locals[argument];
  if (value == nullptr) [[unlikely]] {
    raise_unbound(code_of(m.frame), argument);
    return Step::kError;
  }
  m.push(Py_NewRef(value));
  return Step::kNext;
}

/// Two locals in one argument, four bits each: the first in the upper ones.
THUNDER_HANDLER(load_fast_load_fast) {
  const Step first = load_fast<kObserved>(m, argument >> 4);
  return first == Step::kNext ? load_fast<kObserved>(m, argument & 15) : first;
}

/// Comprehensions that run in their caller's frame put a local aside, which may be unset.
THUNDER_HANDLER(load_fast_and_clear) {
  m.push(m.locals[argument]);
  m.locals[argument] = nullptr;
  return Step::kNext;
}

THUNDER_HANDLER(store_fast) {
  m.set_local(argument, m.pop());
  return Step::kNext;
}

THUNDER_HANDLER(store_fast_load_fast) {
  m.set_local(argument >> 4, m.pop());
  return load_fast<kObserved>(m, argument & 15);
}

THUNDER_HANDLER(store_fast_store_fast) {
  m.set_local(argument >> 4, m.pop());
  m.set_local(argument & 15, m.pop());
  return Step::kNext;
}

THUNDER_HANDLER(delete_fast) {
  if (m.locals[argument] == nullptr) {
    raise_unbound(code_of(m.frame), argument);
    return Step::kError;
  }
  m.set_local(argument, nullptr);
  return Step::kNext;
}

/// The frame's `locals()` mapping, or null with SystemError.
inline PyObject* local_namespace(PyObject* locals, PyObject* name, const char* purpose) {
  if (locals == nullptr) PyErr_Format(PyExc_SystemError, "no locals %s %R", purpose, name);
  return locals;
}

THUNDER_HANDLER(store_name) {
  PyObject* name = m.name(argument);
  PyObject* value = m.pop();
  PyObject* locals = local_namespace(m.frame->f_locals, name, "found when storing");
  bool done = locals != nullptr;
  if constexpr (kObserved) done = done && observed_write(*m.observer, locals, WriteKind::kItem, name);
  done = done &&
         (PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value) : PyObject_SetItem(locals, name, value)) == 0;
  if constexpr (kObserved) m.observer->after_write();
  Py_DECREF(value);
  return done ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(delete_name) {
  PyObject* name = m.name(argument);
  PyObject* locals = local_namespace(m.frame->f_locals, name, "when deleting");
  if (locals == nullptr) return Step::kError;
  if constexpr (kObserved)
    if (!observed_write(*m.observer, locals, WriteKind::kDeleteItem, name)) return Step::kError;
  const bool is_deleted = PyObject_DelItem(locals, name) == 0;
  if constexpr (kObserved) m.observer->after_write();
  if (is_deleted) return Step::kNext;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) raise_name_error(name);
  return Step::kError;
}

THUNDER_HANDLER(store_global) {
  PyObject* name = m.name(argument);
  PyObject* value = m.pop();
  bool done = true;
  if constexpr (kObserved) done = m.observer->before_write(m.frame->f_globals, WriteKind::kGlobal, name);
  done = done && PyDict_SetItem(m.frame->f_globals, name, value) == 0;
  if constexpr (kObserved) m.observer->after_write();
  Py_DECREF(value);
  return done ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(delete_global) {
  PyObject* name = m.name(argument);
  if constexpr (kObserved)
    if (!m.observer->before_write(m.frame->f_globals, WriteKind::kDeleteGlobal, name)) return Step::kError;
  const bool is_deleted = PyDict_DelItem(m.frame->f_globals, name) == 0;
  if constexpr (kObserved) m.observer->after_write();
  if (is_deleted) return Step::kNext;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) raise_name_error(name);
  return Step::kError;
}

/// A new reference to a global or builtin; null with NameError. `observer` may be null.
inline PyObject* find_global(PyObject* globals, PyObject* builtins, PyObject* name, Observer* observer) {
  PyObject* value = lookup_item(globals, name);
  if (value == nullptr && PyErr_Occurred()) return nullptr;
  const bool from_builtins = value == nullptr;
  if (from_builtins) {
    value = lookup_item(builtins, name);
    if (value == nullptr) {
      if (PyErr_Occurred() || (observer != nullptr && !observer->read_missing_global(globals, name))) return nullptr;
      raise_name_error(name);
      return nullptr;
    }
  }
  return observer != nullptr ? observer->read_global(globals, name, from_builtins, value) : value;
}

/// `find_global` without an observer, faster for exact dicts and interned names.
THUNDER_INLINE PyObject* find_global_fast(PyObject* globals, PyObject* builtins, PyObject* name) {
  if (PyDict_CheckExact(globals) && PyDict_CheckExact(builtins)) [[likely]] {
    const Py_hash_t hash = reinterpret_cast<PyASCIIObject*>(name)->hash;
    if (hash != -1) [[likely]] {
      PyObject* value = _PyDict_GetItem_KnownHash(globals, name, hash);
      if (value == nullptr && !PyErr_Occurred()) value = _PyDict_GetItem_KnownHash(builtins, name, hash);
      if (value != nullptr) return Py_NewRef(value);
      if (PyErr_Occurred()) return nullptr;
    }
  }
  return find_global(globals, builtins, name, nullptr);
}

template <bool kObserved>
THUNDER_INLINE PyObject* read_global(Machine& m, PyObject* name) {
  if constexpr (kObserved) return find_global(m.frame->f_globals, m.frame->f_builtins, name, m.observer);
  return find_global_fast(m.frame->f_globals, m.frame->f_builtins, name);
}

/// The low bit of the argument asks for a null below the value.
THUNDER_HANDLER(load_global) {
  PyObject* value = read_global<kObserved>(m, m.name(argument >> 1));
  if (value == nullptr) return Step::kError;
  if ((argument & 1) != 0) m.push(nullptr);
  m.push(value);
  return Step::kNext;
}

/// 3.13: the null stands above the value.
THUNDER_HANDLER(load_global_null_above) {
  PyObject* value = read_global<kObserved>(m, m.name(argument >> 1));
  if (value == nullptr) return Step::kError;
  m.push(value);
  if ((argument & 1) != 0) m.push(nullptr);
  return Step::kNext;
}

THUNDER_HANDLER(load_name) {
  PyObject* name = m.name(argument);
  PyObject* locals = local_namespace(m.frame->f_locals, name, "when loading");
  if (locals == nullptr) return Step::kError;
  PyObject* value = lookup_item(locals, name);
  if (value != nullptr) {
    // Module code: its locals are its globals.
    if constexpr (kObserved)
      if (locals == m.frame->f_globals) value = m.observer->read_global(locals, name, false, value);
    return m.push_result(value);
  }
  if (PyErr_Occurred()) return Step::kError;
  return m.push_result(read_global<kObserved>(m, name));
}

THUNDER_HANDLER(load_locals) {
  if (m.frame->f_locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals found");
    return Step::kError;
  }
  m.push(Py_NewRef(m.frame->f_locals));
  return Step::kNext;
}

/// A name in the class namespace or mapping on the stack, or a global.
THUNDER_HANDLER(load_from_dict_or_globals) {
  PyObject* name = m.name(argument);
  PyObject* value = lookup_item(m.top(), name);
  if (value == nullptr && !PyErr_Occurred()) value = read_global<kObserved>(m, name);
  return m.replace_top(value);
}

THUNDER_HANDLER(make_cell) {
  PyObject* cell = PyCell_New(m.locals[argument]);
  if (cell == nullptr) return Step::kError;
  m.set_local(argument, cell);
  return Step::kNext;
}

#if PY_VERSION_HEX >= 0x030b0000
THUNDER_HANDLER(copy_free_vars) {
  const PyCodeObject* code = code_of(m.frame);
  PyObject* closure = function_of(m.frame)->func_closure;
  PyObject** place = m.locals + code->co_nlocalsplus - argument;
  for (int i = 0; i < argument; ++i) place[i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return Step::kNext;
}
#endif

/// A cell's value as the program sees it; null with an exception when it is empty.
template <bool kObserved>
THUNDER_INLINE PyObject* read_cell(Machine& m, int index) {
  PyObject* cell = m.locals[index];
  PyObject* value = PyCell_GET(cell);
  if (value == nullptr) [[unlikely]] {
    if constexpr (kObserved)
      if (!m.observer->read_empty_cell(cell)) return nullptr;
    raise_unbound(code_of(m.frame), index);
    return nullptr;
  }
  Py_INCREF(value);
  if constexpr (kObserved) value = m.observer->read_cell(cell, value);
  return value;
}

THUNDER_HANDLER(load_deref) { return m.push_result(read_cell<kObserved>(m, argument)); }

#if PY_VERSION_HEX >= 0x030b0000
/// A class body's free variable: its namespace goes first.
THUNDER_HANDLER(load_class_deref) {
  PyObject* name = PyTuple_GET_ITEM(code_of(m.frame)->co_localsplusnames, argument);
  PyObject* value = lookup_item(m.frame->f_locals, name);
  if (value == nullptr && PyErr_Occurred()) return Step::kError;
  return m.push_result(value != nullptr ? value : read_cell<kObserved>(m, argument));
}
#endif

#if PY_VERSION_HEX >= 0x030b0000
THUNDER_HANDLER(load_from_dict_or_deref) {
  PyObject* name = PyTuple_GET_ITEM(code_of(m.frame)->co_localsplusnames, argument);
  PyObject* value = lookup_item(m.top(), name);
  if (value == nullptr && !PyErr_Occurred()) value = read_cell<kObserved>(m, argument);
  return m.replace_top(value);
}
#endif

THUNDER_HANDLER(store_deref) {
  PyObject* cell = m.locals[argument];
  PyObject* value = m.pop();
  if constexpr (kObserved) {
    if (!m.observer->before_write(cell, WriteKind::kCell, nullptr)) {
      Py_DECREF(value);
      return Step::kError;
    }
  }
  PyObject* old = PyCell_GET(cell);
  PyCell_SET(cell, value);
  if constexpr (kObserved) m.observer->after_write();
  Py_XDECREF(old);
  return Step::kNext;
}

THUNDER_HANDLER(delete_deref) {
  PyObject* cell = m.locals[argument];
  PyObject* old = PyCell_GET(cell);
  if (old == nullptr) {
    raise_unbound(code_of(m.frame), argument);
    return Step::kError;
  }
  if constexpr (kObserved)
    if (!m.observer->before_write(cell, WriteKind::kCell, nullptr)) return Step::kError;
  PyCell_SET(cell, nullptr);
  if constexpr (kObserved) m.observer->after_write();
  Py_DECREF(old);
  return Step::kNext;
}

}  // namespace thunder::interpreter
