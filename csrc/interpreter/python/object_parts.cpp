#include "interpreter/python/object_parts.h"

#include <string_view>
#include <utility>

#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"

namespace thunder::interpreter {

PyObject** function_slot(py::Borrowed function, FunctionPart part) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  switch (part) {
    case FunctionPart::kCode:
      return &object->func_code;
    case FunctionPart::kDefaults:
      return &object->func_defaults;
    case FunctionPart::kKeywordDefaults:
      return &object->func_kwdefaults;
    case FunctionPart::kClosure:
      return &object->func_closure;
    case FunctionPart::kGlobals:
      return &object->func_globals;
    case FunctionPart::kBuiltins:
      return &object->func_builtins;
  }
  return nullptr;
}

py::Ref referent_of(py::Borrowed reference) {
  PyObject* value = nullptr;
  if (PyObject* mapping = mapping_behind(reference)) return py::Ref::share(mapping);
  if (PyContextVar_CheckExact(reference)) {
    if (PyContextVar_Get(reference, nullptr, &value) < 0) PyErr_Clear();
  } else if (PyWeakref_Check(reference)) {
    value = PyWeakref_GET_OBJECT(reference);
    return py::Ref::share(value == Py_None ? nullptr : value);
  }
  return py::Ref::steal(value);
}

std::int64_t length_of(py::Borrowed container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  if (PyList_Check(container) || PyTuple_Check(container)) return Py_SIZE(container);
  if (PyAnySet_Check(container)) return PySet_GET_SIZE(container);
  return is_deque(container) ? Py_SIZE(container) : -1;
}

py::Ref items_of(py::Borrowed container) {
  const bool is_tuple = PyTuple_Check(container);
  if (PyList_Check(container)) return py::Ref::steal(PyList_GetSlice(container, 0, Py_SIZE(container)));
  const py::Ref plain =
      py::Ref::steal(is_tuple ? PyTuple_GetSlice(container, 0, Py_SIZE(container)) : PyFrozenSet_New(container));
  return py::Ref::steal(plain ? PySequence_List(plain.get()) : nullptr);
}

py::Ref keys_of(py::Borrowed dict) {
  // An OrderedDict keeps its order beside the dict's own.
  const py::Ref keys =
      py::Ref::steal(PyODict_Check(static_cast<PyObject*>(dict)) ? PyODict_Type.tp_iter(dict) : PyDict_Keys(dict));
  return py::Ref::steal(keys ? PySequence_Tuple(keys.get()) : nullptr);
}

PyObject* builtin_object(const char* name) {
  PyObject* module = PyImport_AddModule("builtins");
  return module == nullptr ? nullptr : PyDict_GetItemString(PyModule_GetDict(module), name);
}

bool is_partial(py::Borrowed object) {
  static const py::Ref type = [] {
    const py::Ref module = py::Ref::steal(py::import_module("functools"));
    return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "partial") : nullptr);
  }();
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type.get();
}

py::Ref self_of_method(py::Borrowed method) {
  if (PyMethod_Check(method)) return py::Ref::share(PyMethod_GET_SELF(static_cast<PyObject*>(method)));
  const bool is_of_c = PyCFunction_Check(method) || std::string_view(Py_TYPE(method)->tp_name) == "method-wrapper";
  py::Ref self = py::Ref::steal(is_of_c ? PyObject_GetAttrString(method, "__self__") : nullptr);
  if (!self) PyErr_Clear();
  return self && PyModule_Check(self.get()) ? py::Ref() : std::move(self);
}

}  // namespace thunder::interpreter
