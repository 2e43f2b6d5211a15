#pragma once

#include <Python.h>
#include <structmember.h>

namespace thunder::interpreter {

/// The attributes of the type itself (borrowed). `tp_dict` of CPython's own types is null since 3.12.
inline PyObject* dict_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030c0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);  // the type keeps it
  return dict;
#else
  return type->tp_dict;
#endif
}

/// Whether `type` was made by a class statement (or a call of `type`), not by C code, whose
/// classes live on the heap too (from Python 3.12 on `deque`'s does).
inline bool is_python_class(PyTypeObject* type) {
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return false;
  return type->tp_name == PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(type)->ht_name);
}

/// Whether attributes of the type itself cannot be set.
inline bool is_immutable_type(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0;
}

/// Calls `visit(name)` for the slots of classes made by class statements; getters and slots of C classes are their own
/// business.
template <typename Visit>
void for_each_slot(PyTypeObject* type, Visit&& visit) {
  PyObject* order = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    if (!is_python_class(base)) continue;
    PyObject *name, *descriptor;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict_of_type(base), &position, &name, &descriptor)) {
      if (Py_TYPE(descriptor) != &PyMemberDescr_Type) continue;
      if (reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->type == T_OBJECT_EX) visit(name);
    }
  }
}

/// Whether a write through this descriptor raises.
[[nodiscard]] bool is_read_only(PyObject* descriptor);

}  // namespace thunder::interpreter
