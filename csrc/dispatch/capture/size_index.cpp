#include "dispatch/capture/size_index.h"

#include "dispatch/numbers/size_number.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/python/python_ref.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

bool is_full_slice(PyObject* index) {
  if (!PySlice_Check(index)) return false;
  const auto* slice = reinterpret_cast<PySliceObject*>(index);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

bool is_position(PyObject* index) { return is_size_number(index) || PyLong_CheckExact(index); }

}  // namespace

PyObject* select_at_sizes(PyObject* tensor, PyObject* key) {
  if (!is_size_number(key) && !PyTuple_CheckExact(key)) return nullptr;
  if (!is_tensor(tensor) || !tracer::is_trace_tensor(unpack_tensor(tensor))) return nullptr;
  PyObject* const* items = PyTuple_CheckExact(key) ? PySequence_Fast_ITEMS(key) : &key;
  const Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1;
  bool has_sizes = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_position(items[i]) && !is_full_slice(items[i])) return nullptr;
    has_sizes = has_sizes || is_size_number(items[i]);
  }
  if (!has_sizes) return nullptr;
  py::Ref part = py::Ref::share(tensor);
  long dim = 0;
  for (Py_ssize_t i = 0; part && i < count; ++i) {
    if (is_full_slice(items[i])) {
      ++dim;
    } else {
      part = py::Ref::steal(PyObject_CallMethod(part.get(), "select", "lO", dim, items[i]));
    }
  }
  // Indexing has words of its own for it, with the number.
  if (!part && PyErr_ExceptionMatches(PyExc_IndexError) != 0) PyErr_Clear();
  return part.release();
}

}  // namespace thunder::dispatch
