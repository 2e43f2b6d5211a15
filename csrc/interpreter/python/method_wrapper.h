#pragma once

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// A special method in C, bound to its object: `[].__setitem__`. Its layout has no public header.
struct MethodWrapper {
  PyObject_HEAD PyWrapperDescrObject* descriptor;
  PyObject* self;
};

/// The object as a method wrapper; null: it is none.
[[nodiscard]] inline const MethodWrapper* method_wrapper(py::Borrowed object) {
  static const PyTypeObject* const type = Py_TYPE(PyObject_GetAttrString(Py_None, "__bool__"));
  PyObject* const found = object;
  return Py_TYPE(found) == type ? reinterpret_cast<const MethodWrapper*>(found) : nullptr;
}

}  // namespace thunder::interpreter
