#include "interpreter/loop/thread_local.h"

#include "interpreter/loop/native_scope.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

PyTypeObject* thread_local_type() {
  static PyObject* const type = [] {
    const py::Ref module = py::Ref::steal(py::import_module("_thread"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "_local") : nullptr;
    PyErr_Clear();
    return found;
  }();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

bool is_thread_local(py::Borrowed object) {
  PyTypeObject* type = Py_TYPE(object);
  while (is_python_class(type)) type = type->tp_base;
  return type == thread_local_type();
}

py::Ref thread_dict(py::Borrowed local) {
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  const NativeScope native;
  return py::Ref::steal(thread_local_type()->tp_getattro(local, name));
}

}  // namespace thunder::interpreter
