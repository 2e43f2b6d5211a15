#include "interpreter/observe.h"
#include "interpreter/ref.h"

namespace thunder::interpreter {

namespace {

bool has_method(PyObject* object, const char* name) {
  const Ref key(PyUnicode_InternFromString(name));
  return key && has_python_method(Py_TYPE(object), key.get());
}

bool is_builtin_container(PyObject* object) {
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || PyAnySet_Check(object);
}

/// Objects that have an identity, but no contents that an operation could look at.
bool has_no_contents(PyObject* object) {
  return is_scalar(object) || PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object) ||
         PyCFunction_Check(object) || PyMethod_Check(object) || PyGen_CheckExact(object);
}

/// Whether operations on `object` run Python code, which is observed itself.
bool is_seen_inside(PyObject* object) { return is_python_class(Py_TYPE(object)) && !is_builtin_container(object); }

bool examine_contents(Observer& observer, PyObject* object) {
  return has_no_contents(object) || is_seen_inside(object) || observer.examine(object, Aspect::kContents);
}

/// The dict behind `dict.keys()` and friends, or null.
PyObject* dict_of_view(PyObject* view) {
  if (!PyDictViewSet_Check(view) && Py_TYPE(view) != &PyDictValues_Type) return nullptr;
  return reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(view)->dv_dict);
}

}  // namespace

bool observed_examine(Observer& observer, PyObject* object, Aspect aspect) {
  switch (aspect) {
    case Aspect::kType:
      return is_scalar(object) || observer.examine(object, aspect);
    case Aspect::kLength:
      return is_scalar(object) || has_method(object, "__len__") || observer.examine(object, aspect);
    case Aspect::kTruth:
      return has_no_contents(object) || has_method(object, "__bool__") || has_method(object, "__len__") ||
             observer.examine(object, aspect);
    case Aspect::kKeys:
      return has_no_contents(object) || observer.examine(object, aspect);
    case Aspect::kContents:
      return examine_contents(observer, object);
  }
  return true;
}

bool observed_write(Observer& observer, PyObject* owner, WriteKind kind, PyObject* key) {
  if (kind == WriteKind::kItem && has_method(owner, "__setitem__")) return true;
  return observer.before_write(owner, kind, key);
}

PyObject* observed_receive(Observer& observer, PyObject* value) {
  return value == nullptr || is_scalar(value) ? value : observer.receive(value);
}

PyObject* observed_get_item(Observer& observer, PyObject* owner, PyObject* key) {
  if (has_no_contents(owner) || has_method(owner, "__getitem__")) return PyObject_GetItem(owner, key);
  if (PyDict_Check(owner) && !PyDict_CheckExact(owner)) {
    // A `__missing__` in C (defaultdict) stores what it makes.
    static PyObject* missing = PyUnicode_InternFromString("__missing__");
    PyObject* method = _PyType_Lookup(Py_TYPE(owner), missing);
    if (method != nullptr && !PyFunction_Check(method)) {
      const int found = PyDict_Contains(owner, key);
      if (found < 0 || (found == 0 && !observer.before_write(owner, WriteKind::kItem, key))) return nullptr;
    }
  }
  PyObject* value = PyObject_GetItem(owner, key);
  if (value != nullptr) return observer.read_item(owner, key, value);
  if (!PyErr_ExceptionMatches(PyExc_LookupError)) return nullptr;
  Ref error(take_exception());
  if (observer.examine(owner, PyDict_Check(owner) ? Aspect::kKeys : Aspect::kLength))
    restore_exception(error.release());
  return nullptr;
}

int observed_set_item(Observer& observer, PyObject* owner, PyObject* key, PyObject* value) {
  if (!has_method(owner, value != nullptr ? "__setitem__" : "__delitem__") &&
      !observer.before_write(owner, WriteKind::kItem, key))
    return -1;
  return value != nullptr ? PyObject_SetItem(owner, key, value) : PyObject_DelItem(owner, key);
}

int observed_is_true(Observer& observer, PyObject* object) {
  return observed_examine(observer, object, Aspect::kTruth) ? PyObject_IsTrue(object) : -1;
}

int observed_contains(Observer& observer, PyObject* container, PyObject* value) {
  bool allowed = true;
  PyObject* dict = dict_of_view(container);
  if (dict != nullptr) {
    allowed = observer.examine(dict, PyDictKeys_Check(container) ? Aspect::kKeys : Aspect::kContents);
  } else if (has_method(container, "__contains__") || has_method(container, "__iter__")) {
    allowed = true;
  } else if (PyDict_Check(container) || PyAnySet_Check(container)) {
    allowed = observer.examine(container, Aspect::kKeys);
  } else {
    allowed = examine_contents(observer, container);
  }
  return allowed ? PySequence_Contains(container, value) : -1;
}

PyObject* observed_binary(Observer& observer, PyObject* left, PyObject* right, binaryfunc operation) {
  if (!examine_contents(observer, left) || !examine_contents(observer, right)) return nullptr;
  return observed_receive(observer, operation(left, right));
}

PyObject* observed_compare(Observer& observer, PyObject* left, PyObject* right, int operation) {
  if (!examine_contents(observer, left) || !examine_contents(observer, right)) return nullptr;
  return observed_receive(observer, PyObject_RichCompare(left, right, operation));
}

PyObject* observed_next_value(Observer& observer, PyObject* iterator, PyObject* value) {
  if (PyGen_CheckExact(iterator) || is_scalar(value) || has_method(iterator, "__next__")) return value;
  return observer.receive(value);
}

bool observed_get_iterator(Observer& observer, PyObject* iterable) {
  if (PyIter_Check(iterable) || has_method(iterable, "__iter__")) return true;
  PyObject* dict = dict_of_view(iterable);
  if (dict != nullptr) return observer.examine(dict, PyDictKeys_Check(iterable) ? Aspect::kKeys : Aspect::kContents);
  if (PyDict_Check(iterable)) return observer.examine(iterable, Aspect::kKeys);
  return examine_contents(observer, iterable);
}

}  // namespace thunder::interpreter
