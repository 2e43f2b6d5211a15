#pragma once

#include <Python.h>

namespace thunder::interpreter {

/// The mapping (borrowed) that a view such as `dict.values()`, or a `types.MappingProxyType`, looks into; null for
/// other objects.
inline PyObject* mapping_behind(PyObject* object) {
  // CPython's `mappingproxy`; its layout has no public header.
  struct MappingProxy {
    PyObject_HEAD PyObject* mapping;
  };
  if (Py_TYPE(object) == &PyDictProxy_Type) return reinterpret_cast<MappingProxy*>(object)->mapping;
  const bool is_view = PyObject_TypeCheck(object, &PyDictValues_Type) ||
                       PyObject_TypeCheck(object, &PyDictItems_Type) || PyObject_TypeCheck(object, &PyDictKeys_Type);
  return is_view ? reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict) : nullptr;
}

}  // namespace thunder::interpreter
