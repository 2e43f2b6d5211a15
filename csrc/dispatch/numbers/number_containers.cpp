#include <utility>

#include "dispatch/numbers/traced_number.h"

namespace thunder::dispatch {
namespace {

/// A number in the place of a traced one (stolen reference kept in `slot`); goes into containers.
bool replace(PyObject** slot, int depth);

bool look_into(PyObject* object, int depth) {
  constexpr int kDeepest = 6;
  if (depth > kDeepest) return true;
  if (PyList_CheckExact(object) || PyTuple_Check(object)) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      if (!replace(&items[i], depth + 1)) return false;
    }
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return replace(&slice->start, depth) && replace(&slice->stop, depth) && replace(&slice->step, depth);
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (!is_traced_number(value)) {
        if (!look_into(value, depth + 1)) return false;
        continue;
      }
      const py::Ref real = py::Ref::steal(look_at(value));
      if (!real || PyDict_SetItem(object, key, real.get()) < 0) return false;  // the key exists: no resize
    }
  }
  return true;
}

bool replace(PyObject** slot, int depth) {
  if (!is_traced_number(*slot)) return look_into(*slot, depth);
  PyObject* real = look_at(*slot);
  if (real == nullptr) return false;
  PyObject* traced = std::exchange(*slot, real);
  Py_DECREF(traced);
  return true;
}

}  // namespace

bool look_inside(PyObject* container) { return look_into(container, 0); }

}  // namespace thunder::dispatch
