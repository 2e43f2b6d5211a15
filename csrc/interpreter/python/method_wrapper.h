#pragma once

#include <string_view>

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

/// The name of the special method in C that a method wrapper, or a wrapper descriptor (`list.__iter__`), is; empty: it
/// is none.
[[nodiscard]] inline std::string_view special_method_name(py::Borrowed object) {
  if (const MethodWrapper* wrapper = method_wrapper(object)) return wrapper->descriptor->d_base->name;
  PyObject* const found = object;
  const bool is_descriptor = Py_TYPE(found) == &PyWrapperDescr_Type;
  return is_descriptor ? reinterpret_cast<PyWrapperDescrObject*>(found)->d_base->name : std::string_view();
}

}  // namespace thunder::interpreter
