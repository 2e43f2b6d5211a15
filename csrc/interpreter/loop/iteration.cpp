#include "interpreter/loop/iteration.h"

#include "interpreter/loop/observe.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

/// The next value as the program sees it; null at the end (no exception) or on failure.
PyObject* next_value(PyObject* iterator, Observer* observer) {
  PyObject* value = PyIter_Next(iterator);
  if (value == nullptr || observer == nullptr) return value;
  return observed_next_value(*observer, iterator, value);
}

void raise_too_few(int expected, bool at_least, Py_ssize_t got) {
  PyErr_Format(PyExc_ValueError,
               at_least ? "not enough values to unpack (expected at least %d, got %zd)"
                        : "not enough values to unpack (expected %d, got %zd)",
               expected, got);
}

void raise_too_many([[maybe_unused]] PyObject* iterable, int expected) {
#if PY_VERSION_HEX >= 0x030e0000
  if (PyList_CheckExact(iterable) || PyTuple_CheckExact(iterable) || PyDict_CheckExact(iterable)) {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d, got %zd)", expected,
                 PyObject_Size(iterable));
    return;
  }
#endif
  PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", expected);
}

bool is_awaitable_generator(PyObject* object) {
  if (PyCoro_CheckExact(object)) return true;
  if (!PyGen_CheckExact(object)) return false;
  const py::Ref code = py::Ref::steal(PyObject_GetAttrString(object, "gi_code"));
  return code && (reinterpret_cast<PyCodeObject*>(code.get())->co_flags & CO_ITERABLE_COROUTINE) != 0;
}

/// Stores the list of what is left and the `after` values behind it; `stored` counts what is on the stack.
bool unpack_rest(PyObject* iterator, int before, int after, PyObject**& slot, Observer* observer) {
  py::Ref rest = py::Ref::steal(PyList_New(0));
  if (!rest) return false;
  while (PyObject* value = next_value(iterator, observer)) {
    const py::Ref owned = py::Ref::steal(value);
    if (PyList_Append(rest.get(), value) < 0) return false;
  }
  if (PyErr_Occurred()) return false;
  const Py_ssize_t size = PyList_GET_SIZE(rest.get());
  if (size < after) {
    raise_too_few(before + after, true, before + size);
    return false;
  }
  PyObject** place = slot - 1;
  for (Py_ssize_t i = size - after; i < size; ++i) *--place = Py_NewRef(PyList_GET_ITEM(rest.get(), i));
  if (PyList_SetSlice(rest.get(), size - after, size, nullptr) < 0) PyErr_Clear();
  *--slot = rest.release();
  slot = place;
  return true;
}

}  // namespace

bool unpack_iterable(PyObject** iterable, int before, int after, PyObject** top, Observer* observer) {
  if (observer != nullptr && !observed_spread(*observer, iterable)) return false;
  PyObject* const taken = *iterable;
  const py::Ref iterator = py::Ref::steal(PyObject_GetIter(taken));
  if (!iterator) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(taken)->tp_iter == nullptr && !PySequence_Check(taken))
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(taken)->tp_name);
    return false;
  }
  PyObject** slot = top;
  bool complete = true;
  for (int i = 0; i < before && complete; ++i) {
    PyObject* value = next_value(iterator.get(), observer);
    if (value != nullptr) {
      *--slot = value;
      continue;
    }
    complete = false;
    if (!PyErr_Occurred()) raise_too_few(before + (after > 0 ? after : 0), after >= 0, i);
  }
  if (complete && after >= 0) {
    complete = unpack_rest(iterator.get(), before, after, slot, observer);
  } else if (complete) {
    const py::Ref extra = py::Ref::steal(PyIter_Next(iterator.get()));
    if (extra) raise_too_many(taken, before);
    complete = PyErr_Occurred() == nullptr;
  }
  if (complete) return true;
  while (slot < top) Py_DECREF(*slot++);
  return false;
}

PyObject* awaitable_iterator(PyObject* object) {
  if (is_awaitable_generator(object)) return Py_NewRef(object);
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_await == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", type->tp_name);
    return nullptr;
  }
  py::Ref iterator = py::Ref::steal(type->tp_as_async->am_await(object));
  if (!iterator) return nullptr;
  if (is_awaitable_generator(iterator.get())) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    return nullptr;
  }
  if (!PyIter_Check(iterator.get())) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'",
                 Py_TYPE(iterator.get())->tp_name);
    return nullptr;
  }
  return iterator.release();
}

PyObject* get_awaitable(PyObject* object, int context) {
  py::Ref iterator = py::Ref::steal(awaitable_iterator(object));
  PyTypeObject* type = Py_TYPE(object);
  if (!iterator) {
    const bool has_await = type->tp_as_async != nullptr && type->tp_as_async->am_await != nullptr;
    if (!has_await && (context == 1 || context == 2))
      PyErr_Format(PyExc_TypeError, "'async with' received an object from %s that does not implement __await__: %.100s",
                   context == 1 ? "__aenter__" : "__aexit__", type->tp_name);
    return nullptr;
  }
  if (PyCoro_CheckExact(iterator.get())) {
    const py::Ref awaited = py::Ref::steal(PyObject_GetAttrString(iterator.get(), "cr_await"));
    if (!awaited) return nullptr;
    if (awaited.get() != Py_None) {
      PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
      return nullptr;
    }
  }
  return iterator.release();
}

PyObject* get_async_iterator(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_aiter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s", type->tp_name);
    return nullptr;
  }
  py::Ref iterator = py::Ref::steal(type->tp_as_async->am_aiter(object));
  if (!iterator) return nullptr;
  PyTypeObject* iterator_type = Py_TYPE(iterator.get());
  if (iterator_type->tp_as_async == nullptr || iterator_type->tp_as_async->am_anext == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 iterator_type->tp_name);
    return nullptr;
  }
  return iterator.release();
}

PyObject* get_async_next(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (PyAsyncGen_CheckExact(iterator)) return type->tp_as_async->am_anext(iterator);
  if (type->tp_as_async == nullptr || type->tp_as_async->am_anext == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s", type->tp_name);
    return nullptr;
  }
  const py::Ref next = py::Ref::steal(type->tp_as_async->am_anext(iterator));
  if (!next) return nullptr;
  PyObject* awaitable = awaitable_iterator(next.get());
  if (awaitable == nullptr)
    _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                           Py_TYPE(next.get())->tp_name);
  return awaitable;
}

#if PY_VERSION_HEX < 0x030d0000
PyObject* wrap_async_value(PyObject* value) {
  struct WrappedValue {
    PyObject_HEAD PyObject* value;
  };
  auto* wrapped = PyObject_GC_New(WrappedValue, &_PyAsyncGenWrappedValue_Type);
  if (wrapped == nullptr) return nullptr;
  wrapped->value = Py_NewRef(value);
  PyObject_GC_Track(wrapped);
  return reinterpret_cast<PyObject*>(wrapped);
}
#endif

PyObject* lookup_context_method(PyObject* manager, bool is_async, bool is_exit) {
  static constexpr const char* kNames[] = {"__enter__", "__exit__", "__aenter__", "__aexit__"};
  static PyObject* keys[] = {PyUnicode_InternFromString(kNames[0]), PyUnicode_InternFromString(kNames[1]),
                             PyUnicode_InternFromString(kNames[2]), PyUnicode_InternFromString(kNames[3])};
  const int index = (is_async ? 2 : 0) + (is_exit ? 1 : 0);
  PyTypeObject* type = Py_TYPE(manager);
  PyObject* method = _PyType_Lookup(type, keys[index]);
  if (method == nullptr) {
#if PY_VERSION_HEX >= 0x030b0000
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the %scontext manager protocol%s%s%s",
                 type->tp_name, is_async ? "asynchronous " : "", is_exit ? " (missed " : "",
                 is_exit ? kNames[index] : "", is_exit ? " method)" : "");
#else
    PyErr_SetObject(PyExc_AttributeError, keys[index]);
#endif
    return nullptr;
  }
  const descrgetfunc get = Py_TYPE(method)->tp_descr_get;
  if (get == nullptr) return Py_NewRef(method);
  const py::Ref owned = py::Ref::share(method);
  return get(method, manager, reinterpret_cast<PyObject*>(type));
}

}  // namespace thunder::interpreter
