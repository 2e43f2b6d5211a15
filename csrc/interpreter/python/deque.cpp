#include "interpreter/python/deque.h"

namespace thunder::interpreter {
namespace {

/// `deque.name(deque[, argument])` of the class in C; 0 or -1.
int call(py::Borrowed deque, const char* name, py::Borrowed argument) {
  const py::Ref method = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(deque_type()), name));
  if (!method) return -1;
  const py::Ref done = py::Ref::steal(PyObject_CallFunctionObjArgs(method.get(), deque, argument, nullptr));
  return done ? 0 : -1;
}

}  // namespace

PyTypeObject* deque_type() {
  static PyTypeObject* const type = [] {
    const py::Ref module = py::Ref::steal(py::import_module("_collections"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "deque") : nullptr;
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

bool is_deque(py::Borrowed object) { return deque_type() != nullptr && PyObject_TypeCheck(object, deque_type()) != 0; }

bool is_limited_deque(py::Borrowed deque) {
  const py::Ref limit = py::Ref::steal(PyObject_GetAttrString(deque, "maxlen"));
  if (!limit) PyErr_Clear();
  return limit.get() != Py_None;
}

py::Borrowed deque_item(py::Borrowed deque, Py_ssize_t index) {
  if (index < 0 || index >= Py_SIZE(deque)) return nullptr;
  PyObject* item = deque_type()->tp_as_sequence->sq_item(deque, index);
  Py_XDECREF(item);  // the deque holds it
  return item;
}

py::Ref deque_items(py::Borrowed deque) {
  const py::Ref iterator = py::Ref::steal(deque_type()->tp_iter(deque));
  return py::Ref::steal(iterator ? PySequence_List(iterator.get()) : nullptr);
}

int extend_deque(py::Borrowed deque, py::Borrowed items) { return call(deque, "extend", items); }

int replace_deque(py::Borrowed deque, py::Borrowed items) {
  return call(deque, "clear", nullptr) < 0 ? -1 : extend_deque(deque, items);
}

}  // namespace thunder::interpreter
