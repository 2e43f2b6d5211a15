#pragma once

#include <Python.h>

namespace thunder::interpreter {

/// The mapping (borrowed) that a view such as `dict.values()`, or a `types.MappingProxyType`, looks into; null for
/// other objects.
inline PyObject* mapping_behind(PyObject* object) {
  // CPython's `mappingproxy` and views of dicts begin alike; no public header of all versions says so.
  struct View {
    PyObject_HEAD PyObject* mapping;
  };
  const bool is_proxy = Py_TYPE(object) == &PyDictProxy_Type;
  const bool is_view = PyObject_TypeCheck(object, &PyDictValues_Type) ||
                       PyObject_TypeCheck(object, &PyDictItems_Type) || PyObject_TypeCheck(object, &PyDictKeys_Type);
  return is_proxy || is_view ? reinterpret_cast<View*>(object)->mapping : nullptr;
}

}  // namespace thunder::interpreter
