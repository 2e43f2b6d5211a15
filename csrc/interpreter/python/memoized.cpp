#include "interpreter/python/memoized.h"

#include <string_view>

namespace thunder::interpreter {
namespace {

/// The dict from keys to results, or to links that hold them, and the function.
struct Parts {
  PyObject* attributes;
  PyObject* cache = nullptr;
  PyObject* function = nullptr;
};

/// The garbage collector visits results, then the dict, then the function, and the `__dict__` last.
int note_part(PyObject* object, void* argument) {
  auto* parts = static_cast<Parts*>(argument);
  if (PyDict_CheckExact(object) && object != parts->attributes) {
    *parts = {parts->attributes, object};
  } else if (parts->cache != nullptr && parts->function == nullptr) {
    parts->function = object;
  }
  return 0;
}

Parts parts_of(py::Borrowed function) {
  const py::Ref attributes = py::Ref::steal(PyObject_GenericGetDict(function, nullptr));
  Parts parts{attributes.get()};
  if (attributes) Py_TYPE(function)->tp_traverse(function, &note_part, &parts);
  return parts;
}

}  // namespace

bool is_memoized(py::Borrowed function) {
  return std::string_view(Py_TYPE(function)->tp_name) == "functools._lru_cache_wrapper";
}

long memo_misses(py::Borrowed function) {
  const py::Ref info = py::Ref::steal(PyObject_CallMethod(function, "cache_info", nullptr));
  return info ? PyLong_AsLong(PyTuple_GET_ITEM(info.get(), 1)) : -1;
}

py::Borrowed memoized_function(py::Borrowed function) { return parts_of(function).function; }

py::Ref newest_memo_key(py::Borrowed function) {
  PyObject* cache = parts_of(function).cache;
  const py::Ref keys = py::Ref::steal(cache != nullptr ? PyObject_CallMethod(cache, "__reversed__", nullptr) : nullptr);
  return py::Ref::steal(keys ? PyIter_Next(keys.get()) : nullptr);
}

void forget_memo(py::Borrowed function, py::Borrowed key) {
  const py::SavedError pending;
  PyObject* cache = parts_of(function).cache;
  if (cache != nullptr && PyDict_Size(cache) > 1) {
    PyDict_DelItem(cache, key);
  } else if (cache != nullptr && PyDict_Contains(cache, key) == 1) {
    // This way, a cache of limited size has room for another result at once.
    static_cast<void>(py::Ref::steal(PyObject_CallMethod(function, "cache_clear", nullptr)));
  }
  PyErr_Clear();
}

}  // namespace thunder::interpreter
