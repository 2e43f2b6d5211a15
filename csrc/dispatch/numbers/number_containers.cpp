#include <utility>

#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/traced_number.h"

namespace thunder::dispatch {
namespace {

/// A number in the place of a traced one (stolen reference kept in `slot`); goes into containers.
bool replace(PyObject** slot, int depth, bool at_sizes);

bool is_replaced(PyObject* object, bool at_sizes) {
  return is_traced_number(object) || (at_sizes && is_size_number(object));
}

PyObject* number_in(PyObject* object) { return is_size_number(object) ? look_at_size(object) : look_at(object); }

bool look_into(PyObject* object, int depth, bool at_sizes) {
  constexpr int kDeepest = 6;
  if (depth > kDeepest) return true;
  if (PyList_CheckExact(object) || PyTuple_Check(object)) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      if (!replace(&items[i], depth + 1, at_sizes)) return false;
    }
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return replace(&slice->start, depth, at_sizes) && replace(&slice->stop, depth, at_sizes) &&
           replace(&slice->step, depth, at_sizes);
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (!is_replaced(value, at_sizes)) {
        if (!look_into(value, depth + 1, at_sizes)) return false;
        continue;
      }
      const py::Ref real = py::Ref::steal(number_in(value));
      if (!real || PyDict_SetItem(object, key, real.get()) < 0) return false;  // the key exists: no resize
    }
  }
  return true;
}

bool replace(PyObject** slot, int depth, bool at_sizes) {
  if (!is_replaced(*slot, at_sizes)) return look_into(*slot, depth, at_sizes);
  PyObject* real = number_in(*slot);
  if (real == nullptr) return false;
  PyObject* traced = std::exchange(*slot, real);
  Py_DECREF(traced);
  return true;
}

}  // namespace

bool look_inside(PyObject* container, bool at_sizes) { return look_into(container, 0, at_sizes); }

}  // namespace thunder::dispatch
