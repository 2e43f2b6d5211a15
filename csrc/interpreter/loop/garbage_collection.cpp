#include "interpreter/loop/garbage_collection.h"

#include <utility>

#include "interpreter/loop/context.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {
namespace {

/// Our entries of `gc.callbacks` while we watch: the first one and the last one, so that others' run in between.
PyObject* callbacks = nullptr;
PyObject* at_start = nullptr;
PyObject* at_stop = nullptr;

thread_local Context* suspended = nullptr;

/// `arguments` are a phase and a dict that tells about the collection.
bool is_phase(PyObject* arguments, const char* phase) {
  if (PyTuple_GET_SIZE(arguments) == 0) return false;
  PyObject* name = PyTuple_GET_ITEM(arguments, 0);
  return PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, phase) == 0;
}

PyObject* suspend(PyObject* /*self*/, PyObject* arguments) {
  if (is_phase(arguments, "start")) suspended = std::exchange(current_context, nullptr);
  Py_RETURN_NONE;
}

PyObject* resume(PyObject* /*self*/, PyObject* arguments) {
  // A collection that began before we watched suspended nothing.
  if (is_phase(arguments, "stop") && suspended != nullptr) current_context = std::exchange(suspended, nullptr);
  Py_RETURN_NONE;
}

void remove(PyObject* callback) {
  for (Py_ssize_t i = PyList_GET_SIZE(callbacks); i-- > 0;) {
    if (PyList_GET_ITEM(callbacks, i) == callback && PySequence_DelItem(callbacks, i) < 0)
      PyErr_WriteUnraisable(callbacks);
  }
}

}  // namespace

int prepare_garbage_collection() {
  if (callbacks != nullptr) return 0;
  static PyMethodDef suspend_method = {"suspend_interpretation", suspend, METH_VARARGS, nullptr};
  static PyMethodDef resume_method = {"resume_interpretation", resume, METH_VARARGS, nullptr};
  const py::Ref module = py::Ref::steal(py::import_module("gc"));
  if (!module) return -1;
  py::Ref list = py::Ref::steal(PyObject_GetAttrString(module.get(), "callbacks"));
  at_start = PyCFunction_New(&suspend_method, nullptr);
  at_stop = PyCFunction_New(&resume_method, nullptr);
  if (!list || at_start == nullptr || at_stop == nullptr) return -1;
  if (!PyList_Check(list.get())) {
    PyErr_SetString(PyExc_TypeError, "gc.callbacks is not a list");
    return -1;
  }
  callbacks = list.release();
  return 0;
}

void watch_collections() {
  if (PyList_Insert(callbacks, 0, at_start) < 0 || PyList_Append(callbacks, at_stop) < 0)
    PyErr_WriteUnraisable(callbacks);
}

void unwatch_collections() {
  remove(at_start);
  remove(at_stop);
}

}  // namespace thunder::interpreter
