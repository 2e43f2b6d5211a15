#include "interpreter/deque.h"
#include "interpreter/tracker.h"

namespace thunder::interpreter {
namespace {

constexpr int kDeepest = 6;

bool is_container(py::Borrowed value) {
  constexpr unsigned long kFlags = Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS;
  return (Py_TYPE(value)->tp_flags & kFlags) != 0 || PyAnySet_Check(value) || is_deque(value);
}

/// The dict that a view looks into; every other object itself.
py::Borrowed behind_view(py::Borrowed object) {
  const bool is_view = PyObject_TypeCheck(object, &PyDictValues_Type) ||
                       PyObject_TypeCheck(object, &PyDictItems_Type) || PyObject_TypeCheck(object, &PyDictKeys_Type);
  return is_view ? reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict) : object;
}

/// Calls `visit(item)` for the items of a list or tuple, or the values of a dict.
template <typename Visit>
void for_each_item(py::Borrowed container, Visit&& visit) {
  if (PyDict_Check(container)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(container, &position, &key, &value)) visit(value);
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    PyObject** items = PySequence_Fast_ITEMS(container);
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(items[i]);
  } else if (is_deque(container)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(deque_item(container, i));
  }
}

}  // namespace

void Tracker::read_contents(Node& node, py::Borrowed contents) {
  PyObject* object = node.object.get();
  if (PyDict_Check(object)) {
    record_fact(node, Accessor::kKeys, py::Ref::steal(PySequence_Tuple(contents)));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(contents, &position, &key, &value)) record(node, Accessor::kDictItem, key, 0, value);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    record_fact(node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(Py_SIZE(contents))));
    for (Py_ssize_t i = 0; i < Py_SIZE(contents); ++i) {
      record(node, Accessor::kItem, nullptr, i, PySequence_Fast_GET_ITEM(contents, i));
    }
  } else if (is_deque(object)) {
    const py::Ref items = PyList_Check(contents) ? py::Ref::share(contents) : deque_items(contents);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      record(node, Accessor::kItem, nullptr, i, PyList_GET_ITEM(items.get(), i));
    }
    if (items) record_fact(node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(PyList_GET_SIZE(items.get()))));
  } else if (PyAnySet_Check(object)) {
    record_fact(node, Accessor::kMembers, py::Ref::steal(PyFrozenSet_New(contents)));
  }
}

bool Tracker::read_original_contents(Node& node) {
  const Record* written = journal_.find(node.object.get());
  read_contents(node, written == nullptr ? node.object.get() : written->before.get());
  return PyErr_Occurred() == nullptr;
}

bool Tracker::examine(PyObject* owner, Aspect aspect) {
  owner = behind_view(owner);
  Node* node = provenance_.find(owner);
  if (node == nullptr) return true;
  if (!is_container(owner)) {
    if (aspect == Aspect::kContents) record_opaque(*node);
    return PyErr_Occurred() == nullptr;
  }
  if (aspect != Aspect::kType && journal_.find(owner) != nullptr) {
    // Guards speak about the state before the call: what the program sees now follows from all of it.
    return read_original_contents(*node);
  }
  switch (aspect) {
    case Aspect::kType:
      break;
    case Aspect::kLength:
      record_fact(*node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(PyObject_Size(owner))));
      break;
    case Aspect::kTruth:
      record_fact(*node, Accessor::kTruth, py::Ref::share(PyObject_Size(owner) != 0 ? Py_True : Py_False));
      break;
    case Aspect::kKeys:
      if (!PyDict_Check(owner)) return read_original_contents(*node);
      record_fact(*node, Accessor::kKeys, py::Ref::steal(PySequence_Tuple(owner)));
      break;
    case Aspect::kContents:
      return read_original_contents(*node);
  }
  return PyErr_Occurred() == nullptr;
}

bool Tracker::examine_presence(PyObject* owner, PyObject* key) {
  record_key(key);
  Node* node = provenance_.find(owner);
  if (node == nullptr) return true;
  if (journal_.find(owner) != nullptr) return read_original_contents(*node);
  const bool is_dict = PyDict_Check(owner);
  const int found = is_dict ? PyDict_Contains(owner, key) : PySet_Contains(owner, key);
  if (found < 0) return PyErr_Clear(), true;  // the program is about to meet the same exception
  if (is_dict && found == 0) {
    record(*node, Accessor::kDictItem, key, 0, nullptr);
    return true;
  }
  if (provenance_.find_read(*node, Accessor::kDictItem, key, 0) != nullptr) return true;
  const Accessor accessor = is_dict ? Accessor::kPresence : Accessor::kContains;
  if (provenance_.find_read(*node, accessor, key, 0) != nullptr) return true;
  Read read{accessor, is_dict ? Expectation::kPresent : Expectation::kEquality, py::Ref::share(key), 0,
            py::Ref::share(found == 1 ? Py_True : Py_False)};
  if (options_.locate) read.location = options_.locate();
  provenance_.add_read(*node, std::move(read));
  return true;
}

bool Tracker::read_deeply(py::Borrowed value, int depth) {
  value = behind_view(value);
  if (is_real_tensor(value)) return true;
  if (!is_container(value)) {
    if (Node* node = provenance_.find(value)) record_opaque(*node);
    return false;
  }
  if (depth > kDeepest) return false;
  if (Node* node = provenance_.find(value); node != nullptr && !node->deeply_read) {
    node->deeply_read = true;
    read_original_contents(*node);
  }
  bool found = false;
  for_each_item(value, [&](PyObject* item) { found |= read_deeply(item, depth + 1); });
  return found;
}

py::Ref Tracker::substitute(py::Borrowed value, int depth) {
  if (is_real_tensor(value)) return py::Ref::steal(present(Py_NewRef(value)));
  if (depth > kDeepest || !is_container(value) || !read_deeply(value, depth)) return py::Ref::share(value);
  if (PyDict_Check(value)) {
    py::Ref copy = py::Ref::steal(PyDict_Copy(value));
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (copy && PyDict_Next(value, &position, &key, &item)) {
      const py::Ref replaced = substitute(item, depth + 1);
      if (!replaced || PyDict_SetItem(copy.get(), key, replaced.get()) < 0) return nullptr;
    }
    return copy;
  }
  py::Ref items = py::Ref::steal(PyList_New(0));
  bool failed = !items;
  for_each_item(value, [&](PyObject* item) {
    const py::Ref replaced = failed ? py::Ref() : substitute(item, depth + 1);
    failed = failed || !replaced || PyList_Append(items.get(), replaced.get()) < 0;
  });
  if (failed) return nullptr;
  if (is_deque(value)) {
    return py::Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(deque_type()), items.get()));
  }
  return PyTuple_Check(value) ? py::Ref::steal(PyList_AsTuple(items.get())) : items;
}

}  // namespace thunder::interpreter
