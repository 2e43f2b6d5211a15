#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/journal_restore.h"

#include <algorithm>

#include "interpreter/loop/signal_handlers.h"
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

/// Applies what the program wrote to keys of a dict, or to members of a set, to a copy from before.
void write_keys(const Record& record, PyObject* copy) {
  for (const WrittenKey& written : record.keys) {
    PyObject* key = written.key.get();
    if (record.store == Store::kDict) {
      if (written.removed || !written.value) delete_dict_item(copy, key);
      if (written.value) set_dict_item(copy, key, written.value.get());
    } else if (record.store == Store::kSet) {
      static_cast<void>(written.value ? PySet_Add(copy, key) : PySet_Discard(copy, key));
    } else if (const Py_ssize_t index = PyLong_AsSsize_t(key); written.value && index < PyList_GET_SIZE(copy)) {
      PyList_SetItem(copy, index, Py_NewRef(written.value.get()));
    }
  }
}

void withdraw_items(py::Borrowed dict, py::Borrowed before, py::Borrowed left) {
  const py::Ref keys = py::Ref::steal(PyDict_Copy(before));
  if (!keys || PyDict_Update(keys.get(), left) < 0) return;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(keys.get(), &position, &key, &value)) {
    PyObject* old = PyDict_GetItemWithError(before, key);
    PyObject* written = PyDict_GetItemWithError(left, key);
    if (old == written || PyDict_GetItemWithError(dict, key) != written) continue;
    if (old != nullptr) {
      set_dict_item(dict, key, old);
    } else {
      delete_dict_item(dict, key);
    }
  }
}

void withdraw_members(py::Borrowed set, py::Borrowed before, py::Borrowed left) {
  const py::Ref added = py::Ref::steal(PyNumber_Subtract(left, before));
  const py::Ref removed = py::Ref::steal(PyNumber_Subtract(before, left));
  if (!added || !removed) return;
  PyObject* member;
  Py_hash_t hash;
  for (Py_ssize_t position = 0; _PySet_NextEntry(added.get(), &position, &member, &hash) != 0;) {
    PySet_Discard(set, member);
  }
  for (Py_ssize_t position = 0; _PySet_NextEntry(removed.get(), &position, &member, &hash) != 0;) {
    PySet_Add(set, member);
  }
}

/// The items of a list or deque without what the program made of `before`: what `left` has between the ends that both
/// share is taken out, one by one, as others may have put something between, and what was there is put back.
py::Ref items_without(py::Borrowed now, py::Borrowed before, py::Borrowed left) {
  const Py_ssize_t old_size = PyList_GET_SIZE(before), new_size = PyList_GET_SIZE(left), size = PyList_GET_SIZE(now);
  const Py_ssize_t shorter = std::min(old_size, new_size);
  PyObject **olds = PySequence_Fast_ITEMS(before), **news = PySequence_Fast_ITEMS(left);
  Py_ssize_t head = 0, tail = 0;
  while (head < shorter && olds[head] == news[head]) ++head;
  while (tail < shorter - head && olds[old_size - 1 - tail] == news[new_size - 1 - tail]) ++tail;
  py::Ref items = py::Ref::steal(PyList_New(0));
  Py_ssize_t next = head, place = -1;
  for (Py_ssize_t i = 0; items && i < size; ++i) {
    PyObject* item = PyList_GET_ITEM(now, i);
    const bool is_ours = i >= head && next < new_size - tail && item == news[next];
    if (place < 0 && (is_ours || (i == head && next == new_size - tail))) place = PyList_GET_SIZE(items.get());
    if (is_ours) {
      ++next;
    } else if (PyList_Append(items.get(), item) < 0) {
      return nullptr;
    }
  }
  if (!items) return nullptr;
  if (place < 0) place = PyList_GET_SIZE(items.get());
  const py::Ref removed = py::Ref::steal(PyList_GetSlice(before, head, old_size - tail));
  return removed && PyList_SetSlice(items.get(), place, place, removed.get()) == 0 ? std::move(items) : py::Ref();
}

/// Whether a descriptor in C makes an object anew at each look.
bool is_computed_slot(const Record& record) {
  if (record.store != Store::kSlot) return false;
  PyObject* owner = record.owner.get();
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), record.name.get());
  return descriptor != nullptr && Py_TYPE(descriptor) == &PyGetSetDescr_Type;
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

py::Ref contents_of(const Record& record) {
  if (record.store == Store::kCell) return py::Ref::steal(PyCell_Get(record.owner.get()));
  if (record.store == Store::kSlot) return get_slot(record.owner.get(), record.name.get());
  return copy_of(record.owner.get(), record.store);
}

py::Ref with_writes(const Record& record) {
  if (record.rewritten || record.store == Store::kCell || record.store == Store::kSlot) return record.after;
  PyObject* before = record.before.get();
  py::Ref left = record.store == Store::kDict  ? py::Ref::steal(PyDict_Copy(before))
                 : record.store == Store::kSet ? py::Ref::steal(PySet_New(before))
                                               : items_of(before);
  if (!left) return nullptr;
  write_keys(record, left.get());
  for (const py::Ref& item : record.added) {
    if (PyList_Append(left.get(), item.get()) < 0) return nullptr;
  }
  PyErr_Clear();
  return left;
}

bool holds_others(const Record& record) {
  if (interruption_count() == record.checked_at) return false;
  if (record.is_open || record.is_unclear) return true;
  const py::SavedError pending;
  const py::Ref left = with_writes(record);
  const bool is_value = record.store == Store::kCell || record.store == Store::kSlot;
  const bool is_same = is_value ? contents_of(record).get() == left.get() || is_computed_slot(record)
                                : left && holds_same(record.owner.get(), left.get());
  PyErr_Clear();
  if (is_same) record.checked_at = interruption_count();
  return !is_same;
}

void withdraw(const Record& record, py::Borrowed target) {
  const py::SavedError pending;
  const py::Ref left = with_writes(record);
  PyObject* before = record.before.get();
  switch (record.store) {
    case Store::kDict:
      if (left) withdraw_items(target, before, left.get());
      break;
    case Store::kSet:
      if (left) withdraw_members(target, before, left.get());
      break;
    case Store::kList:
    case Store::kDeque: {
      const py::Ref now = items_of(target);
      const py::Ref items = left && now ? items_without(now.get(), before, left.get()) : py::Ref();
      if (items && PyList_Check(target)) PyList_SetSlice(target, 0, PyList_GET_SIZE(target), items.get());
      if (items && !PyList_Check(target)) replace_deque(target, items.get());
      break;
    }
    case Store::kCell:
    case Store::kSlot:
      if (contents_of(record).get() == left.get()) restore(record);
      break;
  }
  const bool is_value = record.store == Store::kCell || record.store == Store::kSlot;
  if (!left && !is_value) restore(record);  // rather what another thread wrote is lost than that ours stays
  PyErr_Clear();
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
