#include "interpreter/guards/weak_keys.h"

namespace thunder::interpreter {
namespace {

/// A tuple of what `change` gives for each item; null when it gives null for one.
template <typename Change>
py::Ref changed_tuple(py::Borrowed tuple, const Change& change) {
  py::Ref result = py::Ref::steal(PyTuple_New(PyTuple_GET_SIZE(tuple)));
  for (Py_ssize_t i = 0; result && i < PyTuple_GET_SIZE(tuple); ++i) {
    py::Ref item = change(PyTuple_GET_ITEM(tuple, i));
    if (!item) return nullptr;
    PyTuple_SET_ITEM(result.get(), i, item.release());
  }
  return result;
}

bool has_weak_references(py::Borrowed key) {
  if (PyWeakref_Check(key)) return true;
  for (Py_ssize_t i = 0; PyTuple_CheckExact(key) && i < PyTuple_GET_SIZE(key); ++i) {
    if (has_weak_references(PyTuple_GET_ITEM(key, i))) return true;
  }
  return false;
}

py::Ref with_references(py::Borrowed key, const ReferenceTo& reference_to, bool& found) {
  if (PyTuple_CheckExact(key)) {
    return changed_tuple(key, [&](PyObject* item) { return with_references(item, reference_to, found); });
  }
  py::Ref reference = reference_to(key);
  found |= static_cast<bool>(reference);
  return reference ? std::move(reference) : py::Ref::share(key);
}

}  // namespace

py::Ref weak_key(py::Borrowed key, const ReferenceTo& reference_to) {
  if (has_weak_references(key)) return nullptr;
  bool found = false;
  py::Ref result = with_references(key, reference_to, found);
  return found ? std::move(result) : py::Ref();
}

py::Ref strong_key(py::Borrowed weak) {
  if (PyTuple_CheckExact(weak)) return changed_tuple(weak, strong_key);
  if (!PyWeakref_CheckRefExact(weak)) return py::Ref::share(weak);
  PyObject* object = PyWeakref_GET_OBJECT(weak);
  return object == Py_None ? py::Ref() : py::Ref::share(object);
}

}  // namespace thunder::interpreter
