#pragma once

#include <string_view>

#include "interpreter/python/deque.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

inline bool is_container_class(PyTypeObject* type) {
  constexpr unsigned long kFlags = Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS;
  return (type->tp_flags & kFlags) != 0 || PyType_IsSubtype(type, &PySet_Type) != 0 ||
         PyType_IsSubtype(type, &PyFrozenSet_Type) != 0 || PyType_IsSubtype(type, deque_type()) != 0;
}

inline bool is_container(py::Borrowed value) { return is_container_class(Py_TYPE(value)); }

/// Iterators in C that take their values from other objects: `iter(items)`, `zip(a, b)`, `itertools.chain(a, b)`.
inline bool iterates_over_objects(py::Borrowed object) {
  PyTypeObject* type = Py_TYPE(object);
  const std::string_view name = type->tp_name;
  if (name.starts_with("itertools.")) return true;
  return PyIter_Check(object) && !PyGen_CheckExact(object) && !is_python_class(type) && !name.starts_with("_io.");
}

/// Calls `visit(item)` for the items of a list or tuple, the values of a dict and the ends of a slice.
template <typename Visit>
void for_each_item(py::Borrowed container, Visit&& visit) {
  if (PyDict_Check(container)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(container, &position, &key, &value)) visit(value);
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    PyObject** items = PySequence_Fast_ITEMS(container);
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(items[i]);
  } else if (is_deque(container)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(deque_item(container, i));
  } else if (PySlice_Check(container)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(container);
    for (PyObject* end : {slice->start, slice->stop, slice->step}) visit(end);
  }
}

/// Calls `visit(key)` for the keys of a dict and the members of a set.
template <typename Visit>
void for_each_key(py::Borrowed container, Visit&& visit) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  Py_hash_t hash;
  if (PyDict_Check(container)) {
    while (PyDict_Next(container, &position, &key, &value)) visit(key);
  } else if (PyAnySet_Check(container)) {
    while (_PySet_NextEntry(container, &position, &key, &hash)) visit(key);
  }
}

/// The members of a set in the order of an iteration over it, as a tuple: as the built-in class itself gives them.
inline py::Ref members_of(py::Borrowed set) {
  py::Ref members = py::Ref::steal(PyTuple_New(PySet_GET_SIZE(set)));
  Py_ssize_t index = 0;
  for_each_key(set, [&](PyObject* member) {
    if (members) PyTuple_SET_ITEM(members.get(), index++, Py_NewRef(member));
  });
  return members;
}

}  // namespace thunder::interpreter
