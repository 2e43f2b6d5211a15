#include "interpreter/provenance/journal_restore.h"

#include "interpreter/python/deque.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

int clear_dict(py::Borrowed dict) {
  if (!PyODict_Check(dict)) return PyDict_Clear(dict), 0;
  const py::Ref clear = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyODict_Type), "clear"));
  const py::Ref done = py::Ref::steal(clear ? PyObject_CallOneArg(clear.get(), dict) : nullptr);
  return done ? 0 : -1;
}

/// The items of a list or deque.
py::Ref items_of(py::Borrowed sequence) {
  return PyList_Check(sequence) ? py::Ref::steal(PyList_GetSlice(sequence, 0, PyList_GET_SIZE(sequence)))
                                : deque_items(sequence);
}

bool holds_same_items(py::Borrowed dict, py::Borrowed copy) {
  const py::Ref now = copy_of_dict(dict);
  if (!now || PyDict_GET_SIZE(now.get()) != PyDict_GET_SIZE(copy)) return false;
  PyObject *key, *value, *old_key, *old_value;
  Py_ssize_t position = 0, old_position = 0;
  while (PyDict_Next(now.get(), &position, &key, &value) && PyDict_Next(copy, &old_position, &old_key, &old_value)) {
    if (key != old_key || value != old_value) return false;
  }
  return true;
}

void restore_dict(py::Borrowed dict, py::Borrowed before) {
  // Deleting what is new and setting what changed keeps the order, unless something old was deleted or moved.
  const py::Ref now = copy_of_dict(dict);
  if (!now || !begins_with_keys(now.get(), before)) {
    replace_dict(dict, before);
    return;
  }
  const py::Ref keys = py::Ref::steal(PyDict_Keys(now.get()));
  for (Py_ssize_t i = PyDict_GET_SIZE(before); keys && i < PyList_GET_SIZE(keys.get()); ++i) {
    delete_dict_item(dict, PyList_GET_ITEM(keys.get(), i));
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(before, &position, &key, &value)) {
    if (PyDict_GetItemWithError(dict, key) != value) set_dict_item(dict, key, value);
  }
}

}  // namespace

bool begins_with_keys(py::Borrowed dict, py::Borrowed before) {
  PyObject *key, *value, *old_key;
  Py_ssize_t position = 0, old_position = 0;
  while (PyDict_Next(before, &old_position, &old_key, &value)) {
    if (!PyDict_Next(dict, &position, &key, &value) || key != old_key) return false;
  }
  return true;
}

py::Ref copy_of_dict(py::Borrowed dict) {
  if (!PyODict_Check(dict)) return py::Ref::steal(PyDict_Copy(dict));
  const py::Ref iterator = py::Ref::steal(PyODict_Type.tp_iter(dict));
  py::Ref copy = py::Ref::steal(iterator ? PyDict_New() : nullptr);
  while (copy) {
    const py::Ref key = py::Ref::steal(PyIter_Next(iterator.get()));
    if (!key) return PyErr_Occurred() == nullptr ? copy : nullptr;
    if (PyDict_SetItem(copy.get(), key.get(), PyDict_GetItemWithError(dict, key.get())) < 0) return nullptr;
  }
  return nullptr;
}

py::Ref get_slot(py::Borrowed owner, py::Borrowed name) {
  if (PyType_Check(owner)) {
    PyObject* behind = _PyType_Lookup(Py_TYPE(owner), name);  // `__name__` and the like lie outside of the type's dict
    if (behind == nullptr || Py_TYPE(behind)->tp_descr_set == nullptr) {
      return py::Ref::share(PyDict_GetItemWithError(dict_of_type(reinterpret_cast<PyTypeObject*>(owner)), name));
    }
  }
  py::Ref value =
      py::Ref::steal(PyType_Check(owner) ? PyObject_GetAttr(owner, name) : PyObject_GenericGetAttr(owner, name));
  if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return value;
}

int set_slot(py::Borrowed owner, py::Borrowed name, py::Borrowed value) {
  if (PyType_Check(owner)) return PyType_Type.tp_setattro(owner, name, value);
  return PyObject_GenericSetAttr(owner, name, value);
}

int set_dict_item(py::Borrowed dict, py::Borrowed key, py::Borrowed value) {
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value);
}

int delete_dict_item(py::Borrowed dict, py::Borrowed key) {
  const int present = PyDict_Contains(dict, key);
  if (present <= 0) return present;
  return PyODict_Check(dict) ? PyODict_DelItem(dict, key) : PyDict_DelItem(dict, key);
}

int replace_dict(py::Borrowed dict, py::Borrowed contents) {
  if (clear_dict(dict) < 0) return -1;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(contents, &position, &key, &value)) {
    if (set_dict_item(dict, key, value) < 0) return -1;
  }
  return 0;
}

py::Ref copy_of(py::Borrowed container, Store store) {
  switch (store) {
    case Store::kDict:
      return copy_of_dict(container);
    case Store::kSet:
      return py::Ref::steal(PySet_New(container));
    case Store::kList:
    case Store::kDeque:
      return items_of(container);
    case Store::kCell:
    case Store::kSlot:
      break;
  }
  return nullptr;
}

bool holds_same(py::Borrowed container, py::Borrowed copy) {
  if (PyDict_Check(container)) return holds_same_items(container, copy);
  const bool is_set = PyAnySet_Check(container);
  if (is_set && PySet_GET_SIZE(container) != PySet_GET_SIZE(copy)) return false;
  if (is_set) return PyObject_RichCompareBool(container, copy, Py_EQ) == 1;
  const py::Ref items = items_of(container);
  if (!items || PyList_GET_SIZE(items.get()) != PyList_GET_SIZE(copy)) return PyErr_Clear(), false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy); ++i) {
    if (PyList_GET_ITEM(items.get(), i) != PyList_GET_ITEM(copy, i)) return false;
  }
  return true;
}

void restore(const Record& record) {
  PyObject* owner = record.owner.get();
  PyObject* before = record.before.get();
  switch (record.store) {
    case Store::kDict:
      restore_dict(owner, before);
      break;
    case Store::kList:
      PyList_SetSlice(owner, 0, PyList_GET_SIZE(owner), before);
      break;
    case Store::kSet:
      PySet_Clear(owner);
      _PySet_Update(owner, before);
      break;
    case Store::kDeque:
      replace_deque(owner, before);
      break;
    case Store::kCell:
      PyCell_Set(owner, before);
      break;
    case Store::kSlot:
      set_slot(owner, record.name.get(), before);
      break;
  }
  PyErr_Clear();
}

}  // namespace thunder::interpreter
