#include "interpreter/journal.h"

#include <optional>
#include <ranges>

namespace thunder::interpreter {
namespace {

std::optional<Store> store_of(py::Borrowed container) {
  if (PyDict_Check(container)) return Store::kDict;
  if (PyList_Check(container)) return Store::kList;
  if (PySet_Check(container)) return Store::kSet;
  return std::nullopt;
}

py::Ref copy_of(py::Borrowed container, Store store) {
  switch (store) {
    case Store::kDict:
      return py::Ref::steal(PyDict_Copy(container));
    case Store::kList:
      return py::Ref::steal(PyList_GetSlice(container, 0, PyList_GET_SIZE(container)));
    case Store::kSet:
      return py::Ref::steal(PySet_New(container));
    case Store::kCell:
    case Store::kSlot:
      break;
  }
  return nullptr;
}

void restore_dict(PyObject* dict, PyObject* before) {
  // Deleting what is new and setting what changed keeps the order, unless something old was deleted.
  bool order_kept = true;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(before, &position, &key, &value)) {
    if (PyDict_GetItemWithError(dict, key) == nullptr) order_kept = false;
  }
  if (!order_kept || PyObject_TypeCheck(dict, &PyODict_Type)) {
    if (PyODict_Check(dict)) {
      const py::Ref cleared = py::Ref::steal(PyObject_CallMethod(dict, "clear", nullptr));
    } else {
      PyDict_Clear(dict);
    }
  } else {
    const py::Ref now = py::Ref::steal(PyDict_Keys(dict));
    for (Py_ssize_t i = 0; now && i < PyList_GET_SIZE(now.get()); ++i) {
      if (PyDict_Contains(before, PyList_GET_ITEM(now.get(), i)) == 0)
        PyDict_DelItem(dict, PyList_GET_ITEM(now.get(), i));
    }
  }
  position = 0;
  while (PyDict_Next(before, &position, &key, &value)) {
    if (PyDict_GetItemWithError(dict, key) == value) continue;
    PyODict_Check(dict) ? PyODict_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value);
  }
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
    case Store::kCell:
      PyCell_Set(owner, before);
      break;
    case Store::kSlot:
      set_slot(owner, record.name.get(), before);
      break;
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

}  // namespace

int set_slot(py::Borrowed owner, py::Borrowed name, py::Borrowed value) {
  if (PyType_Check(owner)) return PyType_Type.tp_setattro(owner, name, value);
  return PyObject_GenericSetAttr(owner, name, value);
}

Record* Journal::open(py::Borrowed container, Store store) {
  if (const auto found = by_owner_.find(container); found != by_owner_.end()) return found->second;
  py::Ref before = store == Store::kCell ? py::Ref::steal(PyCell_Get(container)) : copy_of(container, store);
  if (!before && store != Store::kCell) return nullptr;
  Record& record = records_.emplace_back(Record{store, py::Ref::share(container), {}, std::move(before), {}});
  by_owner_.emplace(container, &record);
  return &record;
}

bool Journal::before_dict_item(py::Borrowed dict, py::Borrowed key) {
  Record* record = open(dict, Store::kDict);
  if (record == nullptr) return false;
  for (const py::Ref& known : record->keys) {
    if (known.get() == key) return true;
    const int same = PyObject_RichCompareBool(known.get(), key, Py_EQ);
    if (same != 0) return same > 0;
  }
  record->keys.push_back(py::Ref::share(key));
  return true;
}

bool Journal::before_list_item(py::Borrowed list, Py_ssize_t index) {
  Record* record = open(list, Store::kList);
  if (record == nullptr) return false;
  for (const py::Ref& known : record->keys) {
    if (PyLong_AsSsize_t(known.get()) == index) return true;
  }
  record->keys.push_back(py::Ref::steal(PyLong_FromSsize_t(index)));
  return true;
}

bool Journal::before_append(py::Borrowed list) {
  Record* record = open(list, Store::kList);
  if (record != nullptr) record->appended = true;
  return record != nullptr;
}

bool Journal::before_contents(py::Borrowed container) {
  const std::optional<Store> store = store_of(container);
  if (!store) return false;
  Record* record = open(container, *store);
  if (record != nullptr) record->rewritten = true;
  return record != nullptr;
}

bool Journal::before_cell(py::Borrowed cell) {
  return open(cell, Store::kCell) != nullptr || PyErr_Occurred() == nullptr;
}

bool Journal::before_slot(py::Borrowed owner, py::Borrowed name) {
  if (find_slot(owner, name) != nullptr) return true;
  py::Ref before = PyType_Check(owner)
                       ? py::Ref::share(PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(owner)->tp_dict, name))
                       : py::Ref::steal(PyObject_GenericGetAttr(owner, name));
  if (!before && PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
  }
  records_.push_back(Record{Store::kSlot, py::Ref::share(owner), py::Ref::share(name), std::move(before), {}});
  return true;
}

const Record* Journal::find(py::Borrowed container) const {
  const auto found = by_owner_.find(container);
  return found == by_owner_.end() ? nullptr : found->second;
}

const Record* Journal::find_slot(py::Borrowed owner, py::Borrowed name) const {
  for (const Record& record : records_) {
    if (record.store == Store::kSlot && record.owner.get() == owner && record.name.get() == name) return &record;
  }
  return nullptr;
}

void Journal::rollback() {
  if (records_.empty()) return;
  const py::SavedError pending;
  for (const Record& record : std::views::reverse(records_)) restore(record);
  by_owner_.clear();
  records_.clear();
}

}  // namespace thunder::interpreter
