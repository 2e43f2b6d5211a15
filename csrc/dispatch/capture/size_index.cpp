#include "dispatch/capture/size_index.h"

#include <algorithm>

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

/// Whether an index stands for one dimension, so that it is known which one those behind it are for.
bool has_one_dimension(PyObject* index) {
  if (is_size_number(index) || PyLong_CheckExact(index) || PySlice_Check(index)) return true;
  return is_tensor(index) && unpack_tensor(index).scalar_type() != at::kBool &&
         unpack_tensor(index).scalar_type() != at::kByte;
}

}  // namespace

std::optional<PartAtSizes> select_at_sizes(PyObject* tensor, PyObject* key) {
  if (!is_size_number(key) && !PyTuple_CheckExact(key)) return std::nullopt;
  if (!is_tensor(tensor) || !tracer::is_trace_tensor(unpack_tensor(tensor))) return std::nullopt;
  PyObject* const* items = PyTuple_CheckExact(key) ? PySequence_Fast_ITEMS(key) : &key;
  const Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1;
  PyObject* const* const end = std::find_if_not(items, items + count, has_one_dimension);
  if (std::none_of(items, end, is_size_number)) return std::nullopt;
  PartAtSizes part{py::Ref::share(tensor), py::Ref::steal(PyList_New(0))};
  bool is_full = true;
  for (PyObject* const* item = items; part.tensor && part.rest && item != items + count; ++item) {
    if (item < end && is_size_number(*item)) {
      const auto dim = static_cast<long>(PyList_GET_SIZE(part.rest.get()));
      part.tensor = py::Ref::steal(PyObject_CallMethod(part.tensor.get(), "select", "lO", dim, *item));
      continue;
    }
    is_full = is_full && is_full_slice(*item);
    if (PyList_Append(part.rest.get(), *item) < 0) return std::nullopt;
  }
  // Indexing has words of its own for it, with the number.
  if (!part.tensor && PyErr_ExceptionMatches(PyExc_IndexError) != 0) PyErr_Clear();
  if (!part.tensor || !part.rest) return std::nullopt;
  part.rest = is_full ? nullptr : py::Ref::steal(PyList_AsTuple(part.rest.get()));
  return part;
}

}  // namespace thunder::dispatch
