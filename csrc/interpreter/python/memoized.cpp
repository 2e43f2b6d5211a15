#include "interpreter/python/memoized.h"

#include <string_view>

namespace thunder::interpreter {
namespace {

struct Search {
  PyObject* attributes;
  PyObject* found = nullptr;
};

int note_dict(PyObject* object, void* argument) {
  auto* search = static_cast<Search*>(argument);
  if (PyDict_CheckExact(object) && object != search->attributes) search->found = object;
  return 0;
}

/// The dict from keys to results, or to links that hold them. The garbage collector visits it after the results and
/// before the `__dict__`.
py::Ref cache_of(py::Borrowed function) {
  const py::Ref attributes = py::Ref::steal(PyObject_GenericGetDict(function, nullptr));
  if (!attributes) return nullptr;
  Search search{attributes.get()};
  Py_TYPE(function)->tp_traverse(function, &note_dict, &search);
  return py::Ref::share(search.found);
}

}  // namespace

bool is_memoized(py::Borrowed function) {
  return std::string_view(Py_TYPE(function)->tp_name) == "functools._lru_cache_wrapper";
}

long memo_misses(py::Borrowed function) {
  const py::Ref info = py::Ref::steal(PyObject_CallMethod(function, "cache_info", nullptr));
  return info ? PyLong_AsLong(PyTuple_GET_ITEM(info.get(), 1)) : -1;
}

py::Ref newest_memo_key(py::Borrowed function) {
  const py::Ref cache = cache_of(function);
  const py::Ref keys = py::Ref::steal(cache ? PyObject_CallMethod(cache.get(), "__reversed__", nullptr) : nullptr);
  return py::Ref::steal(keys ? PyIter_Next(keys.get()) : nullptr);
}

void forget_memo(py::Borrowed function, py::Borrowed key) {
  const py::SavedError pending;
  const py::Ref cache = cache_of(function);
  if (cache && PyDict_Size(cache.get()) > 1) {
    PyDict_DelItem(cache.get(), key);
  } else if (cache && PyDict_Contains(cache.get(), key) == 1) {
    // This way, a cache of limited size has room for another result at once.
    static_cast<void>(py::Ref::steal(PyObject_CallMethod(function, "cache_clear", nullptr)));
  }
  PyErr_Clear();
}

}  // namespace thunder::interpreter
