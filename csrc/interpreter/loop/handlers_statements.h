#pragma once

// Classes, imports, patterns, formatting and annotations.

#include "interpreter/loop/machine.h"
#include "interpreter/loop/matching.h"
#include "interpreter/loop/native_operation.h"
#include "interpreter/loop/observe.h"
#include "interpreter/python/imports.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

inline PyObject* find_build_class(PyObject* builtins) {
  static PyObject* key = PyUnicode_InternFromString("__build_class__");
  PyObject* function = lookup_item(builtins, key);
  if (function == nullptr && !PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
  return function;
}

THUNDER_HANDLER(load_build_class) { return m.push_result(find_build_class(m.frame->f_builtins)); }

/// `__annotations__` of a namespace, made if absent; 0 or -1.
inline int prepare_annotations(PyObject* locals) {
  static PyObject* key = PyUnicode_InternFromString("__annotations__");
  if (locals == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return -1;
  }
  PyObject* found = lookup_item(locals, key);
  if (found != nullptr) {
    Py_DECREF(found);
    return 0;
  }
  if (PyErr_Occurred()) return -1;
  PyObject* annotations = PyDict_New();
  if (annotations == nullptr) return -1;
  const int status = PyObject_SetItem(locals, key, annotations);
  Py_DECREF(annotations);
  return status;
}
THUNDER_HANDLER(setup_annotations) { return prepare_annotations(m.frame->f_locals) == 0 ? Step::kNext : Step::kError; }

THUNDER_HANDLER(import_name) {
  PyObject* module =
      import_name(m.frame->f_builtins, m.frame->f_globals, m.frame->f_locals, m.name(argument), m.top(), m.peek(2));
  if constexpr (kObserved) module = m.observer->read_import(m.frame->f_builtins, m.name(argument), m.peek(2), module);
  Py_DECREF(m.pop());
  return m.replace_top(module);
}

THUNDER_HANDLER(import_from) {
  if constexpr (kObserved) {
    PyObject* value = observed_get_attribute(*m.observer, m.top(), m.name(argument));
    if (value != nullptr) return m.push_result(value);
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Step::kError;
    PyErr_Clear();
  }
  return m.push_result(import_from(m.top(), m.name(argument)));
}

THUNDER_HANDLER(print_expr) {
  PyObject* value = m.pop();
  PyObject* hook = PySys_GetObject("displayhook");
  PyObject* result = nullptr;
  if (hook == nullptr)
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
  else
    result = PyObject_CallOneArg(hook, value);
  Py_DECREF(value);
  Py_XDECREF(result);
  return result != nullptr ? Step::kNext : Step::kError;
}

/// `value`'s text by conversion 1 (str), 2 (repr) or 3 (ascii); 0 leaves it. A new reference.
inline PyObject* convert_value(PyObject* value, int conversion) {
  switch (conversion) {
    case 0:
      return Py_NewRef(value);
    case 1:
      return PyObject_Str(value);
    case 2:
      return PyObject_Repr(value);
    case 3:
      return PyObject_ASCII(value);
    default:
      PyErr_Format(PyExc_SystemError, "unexpected conversion flag %d", conversion);
      return nullptr;
  }
}

inline PyObject* format_value(PyObject* value, PyObject* specification) {
  if (PyUnicode_CheckExact(value) && specification == nullptr) return Py_NewRef(value);
  return PyObject_Format(value, specification);
}

/// Has code in C look into the topmost value.
template <bool kObserved>
THUNDER_INLINE bool give_top(Machine& m) {
  if constexpr (kObserved) {
    PyObject* given = observed_given(*m.observer, m.top());
    if (given == nullptr) return false;
    Py_DECREF(m.pop());
    m.push(given);
  }
  return true;
}

THUNDER_HANDLER(format_value_converted) {
  PyObject* specification = (argument & 4) != 0 ? m.pop() : nullptr;
  if (!give_top<kObserved>(m)) {
    Py_XDECREF(specification);
    return Step::kError;
  }
  PyObject* converted = convert_value(m.top(), argument & 3);
  PyObject* text = converted != nullptr ? format_value(converted, specification) : nullptr;
  Py_XDECREF(converted);
  Py_XDECREF(specification);
  return m.replace_top(text);
}

/// 3.13 splits it into three.
THUNDER_HANDLER(convert_value) {
  return give_top<kObserved>(m) ? m.replace_top(convert_value(m.top(), argument)) : Step::kError;
}
THUNDER_HANDLER(format_simple) {
  if (!give_top<kObserved>(m)) return Step::kError;
  return m.replace_top(format_value(m.top(), nullptr));
}
THUNDER_HANDLER(format_with_spec) {
  const py::Ref specification = py::Ref::steal(m.pop());
  if (!give_top<kObserved>(m)) return Step::kError;
  return m.replace_top(PyObject_Format(m.top(), specification.get()));
}

THUNDER_HANDLER(get_len) {
  if constexpr (kObserved)
    if (!observed_examine(*m.observer, m.top(), Aspect::kLength)) return Step::kError;
  const Py_ssize_t length = PyObject_Size(m.top());
  return length < 0 ? Step::kError : m.push_result(PyLong_FromSsize_t(length));
}

template <bool kObserved>
THUNDER_INLINE Step push_type_flag(Machine& m, unsigned long flag) {
  if constexpr (kObserved)
    if (!observed_examine(*m.observer, m.top(), Aspect::kType)) return Step::kError;
  m.push(Py_NewRef(PyType_HasFeature(Py_TYPE(m.top()), flag) ? Py_True : Py_False));
  return Step::kNext;
}
THUNDER_HANDLER(match_mapping) { return push_type_flag<kObserved>(m, Py_TPFLAGS_MAPPING); }
THUNDER_HANDLER(match_sequence) { return push_type_flag<kObserved>(m, Py_TPFLAGS_SEQUENCE); }

/// `subject, kind, keyword names` becomes the attributes' tuple or None.
THUNDER_HANDLER(match_class) {
  PyObject* values = match_class(m.peek(3), m.peek(2), argument, m.top(), kObserved ? m.observer : nullptr);
  m.drop(2);
  return m.replace_top(values);
}

THUNDER_HANDLER(match_keys) { return m.push_result(match_keys(m.peek(2), m.top(), kObserved ? m.observer : nullptr)); }

#if PY_VERSION_HEX >= 0x030b0000
/// `from module import *`: only module code has it, so that no fast locals need to be merged.
THUNDER_HANDLER(import_star) {
  PyObject* module = m.pop();
  PyObject* locals = m.frame->f_locals;
  int status = -1;
  if (locals == nullptr)
    PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
  else
    status = import_star(module, locals);
  Py_DECREF(module);
  return status == 0 ? Step::kNext : Step::kError;
}
#endif

#if PY_VERSION_HEX >= 0x030c0000
THUNDER_HANDLER(call_intrinsic_1) {
  return m.replace_top(call_intrinsic(m.tstate, argument, m.top(), code_of(m.frame)->co_flags, m.frame->f_locals));
}
THUNDER_HANDLER(call_intrinsic_2) {
  PyObject* result = call_intrinsic_2(m.tstate, argument, m.peek(2), m.top());
  m.drop(2);
  return m.push_result(result);
}
#endif

}  // namespace thunder::interpreter
