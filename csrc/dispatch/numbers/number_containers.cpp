#include <utility>

#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/traced_number.h"

namespace thunder::dispatch {
namespace {

/// A number in the place of a traced one (stolen reference kept in `slot`); goes into containers.
bool replace(PyObject** slot, int depth, Inside which);

bool is_replaced(PyObject* object, Inside which) {
  return is_traced_number(object) || (which == Inside::kNumbers && is_size_number(object));
}

PyObject* number_in(PyObject* object, Inside which) {
  if (is_size_number(object)) return look_at_size(object);
  return which == Inside::kSizes ? size_or_number(object) : look_at(object);
}

bool look_into(PyObject* object, int depth, Inside which) {
  constexpr int kDeepest = 6;
  if (depth > kDeepest) return true;
  if (PyList_CheckExact(object) || PyTuple_Check(object)) {
    PyObject** items = PySequence_Fast_ITEMS(object);
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      if (!replace(&items[i], depth + 1, which)) return false;
    }
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return replace(&slice->start, depth, which) && replace(&slice->stop, depth, which) &&
           replace(&slice->step, depth, which);
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (!is_replaced(value, which)) {
        if (!look_into(value, depth + 1, which)) return false;
        continue;
      }
      const py::Ref real = py::Ref::steal(number_in(value, which));
      if (!real || PyDict_SetItem(object, key, real.get()) < 0) return false;  // the key exists: no resize
    }
  }
  return true;
}

bool replace(PyObject** slot, int depth, Inside which) {
  if (!is_replaced(*slot, which)) return look_into(*slot, depth, which);
  PyObject* real = number_in(*slot, which);
  if (real == nullptr) return false;
  PyObject* traced = std::exchange(*slot, real);
  Py_DECREF(traced);
  return true;
}

}  // namespace

PyObject* tuple_of_sizes(PyObject* sequence) {
  const py::Ref sizes = py::Ref::steal(PyTuple_New(Py_SIZE(sequence)));
  for (Py_ssize_t i = 0; sizes && i < Py_SIZE(sequence); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    PyObject* size = is_traced_number(item) ? size_or_number(item) : Py_NewRef(item);
    if (size == nullptr) return nullptr;
    PyTuple_SET_ITEM(sizes.get(), i, size);
  }
  return Py_XNewRef(sizes.get());
}

bool look_inside(PyObject* container, Inside which) { return look_into(container, 0, which); }

}  // namespace thunder::dispatch
