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

/// CPython's `lru_list_elem`, which a cache of limited size holds in the place of a result.
struct Link {
  PyObject ob_base;
  Link* previous;
  Link* next;
  Py_hash_t hash;
  PyObject* key;
  PyObject* result;
};

/// The result in the cache that `value` of its dict stands for; null where it cannot be told.
PyObject* result_in(PyObject* value) {
  if (value == nullptr || std::string_view(Py_TYPE(value)->tp_name) != "functools._lru_list_elem") return value;
  return Py_TYPE(value)->tp_basicsize == sizeof(Link) ? reinterpret_cast<Link*>(value)->result : nullptr;
}

/// Whether a key may be of a call with this first argument. Compares numbers and strings alone: others might run code.
bool may_begin_with(PyObject* key, PyObject* first) {
  PyObject* own = key;
  if (PyTuple_CheckExact(key)) own = PyTuple_GET_SIZE(key) == 0 ? nullptr : PyTuple_GET_ITEM(key, 0);
  const auto is_plain = [](PyObject* object) { return PyLong_CheckExact(object) || PyUnicode_CheckExact(object); };
  if (own == nullptr || first == nullptr || own == first || !is_plain(own) || !is_plain(first)) return true;
  return PyObject_RichCompareBool(own, first, Py_EQ) != 0;
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

std::vector<py::Ref> memo_entries(py::Borrowed function, py::Borrowed first, py::Borrowed result) {
  std::vector<py::Ref> entries;
  PyObject* cache = parts_of(function).cache;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (cache != nullptr && PyDict_Next(cache, &position, &key, &value)) {
    if (result_in(value) == result && may_begin_with(key, first)) {
      entries.push_back(py::Ref::steal(PyTuple_Pack(2, key, static_cast<PyObject*>(result))));
    }
  }
  return entries;
}

bool has_memo_entry(py::Borrowed function, py::Borrowed entry) {
  PyObject* cache = parts_of(function).cache;
  PyObject* expected = PyTuple_GET_ITEM(entry, 0);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  // By identity, as a look-up would call `__hash__` of the arguments.
  while (cache != nullptr && PyDict_Next(cache, &position, &key, &value)) {
    if (key == expected) return result_in(value) == PyTuple_GET_ITEM(entry, 1);
  }
  return false;
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
