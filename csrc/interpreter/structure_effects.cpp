#include "interpreter/structure_builder.h"

namespace thunder::interpreter {
namespace {

// Whether `now` holds the keys of `before` in their order, followed by new ones.
bool keeps_order(py::Borrowed before, py::Borrowed now) {
  PyObject *old_key, *new_key, *value;
  Py_ssize_t old_position = 0, new_position = 0;
  while (PyDict_Next(before, &old_position, &old_key, &value)) {
    if (!PyDict_Next(now, &new_position, &new_key, &value) || old_key != new_key) return false;
  }
  return true;
}

bool is_written_key(const Record& record, py::Borrowed key) {
  for (const py::Ref& written : record.keys) {
    if (written.get() == key) return true;
  }
  return false;
}

}  // namespace

bool StructureBuilder::add_effect(EffectKind kind, std::uint32_t owner, py::Borrowed key, Py_ssize_t index,
                                  py::Borrowed value) {
  const std::uint32_t part = value == nullptr ? 0 : add(value);
  if (part == kFailed) return false;
  structure_.effects_.push_back(Effect{kind, owner, py::Ref::share(key), index, part});
  return true;
}

// `contents` is a fresh copy of the container, so that the template makes one too.
bool StructureBuilder::add_copy_effect(EffectKind kind, std::uint32_t owner, py::Borrowed contents) {
  if (contents == nullptr) return false;
  const std::uint32_t part = add_composite(contents);
  kept_.push_back(py::Ref::share(contents));
  if (part == kFailed) return false;
  structure_.effects_.push_back(Effect{kind, owner, nullptr, 0, part});
  return true;
}

bool StructureBuilder::add_dict_effects(const Record& record, std::uint32_t owner) {
  PyObject* dict = record.owner.get();
  PyObject* before = record.before.get();
  if (record.rewritten && !keeps_order(before, dict)) {
    const py::Ref copy = py::Ref::steal(PyDict_New());
    if (!copy || PyDict_Update(copy.get(), dict) < 0) return false;
    return add_copy_effect(EffectKind::kReplaceDict, owner, copy.get());
  }
  for (const py::Ref& key : record.keys) {
    PyObject* now = PyDict_GetItemWithError(dict, key.get());
    if (now == nullptr && PyDict_GetItemWithError(before, key.get()) == nullptr) continue;
    const EffectKind kind = now == nullptr ? EffectKind::kDeleteItem : EffectKind::kSetItem;
    if (!add_effect(kind, owner, key.get(), 0, now)) return false;
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (record.rewritten && PyDict_Next(dict, &position, &key, &value)) {
    if (is_written_key(record, key) || PyDict_GetItemWithError(before, key) == value) continue;
    if (!add_effect(EffectKind::kSetItem, owner, key, 0, value)) return false;
  }
  return true;
}

bool StructureBuilder::add_list_effects(const Record& record, std::uint32_t owner) {
  PyObject* list = record.owner.get();
  const Py_ssize_t size = PyList_GET_SIZE(list);
  const Py_ssize_t size_before = PyList_GET_SIZE(record.before.get());
  if (record.rewritten) {
    const py::Ref copy = py::Ref::steal(PyList_GetSlice(list, 0, size));
    return add_copy_effect(EffectKind::kReplaceList, owner, copy.get());
  }
  for (const py::Ref& key : record.keys) {
    const Py_ssize_t index = PyLong_AsSsize_t(key.get());
    if (!add_effect(EffectKind::kSetListItem, owner, nullptr, index, PyList_GET_ITEM(list, index))) return false;
  }
  if (size == size_before) return true;
  const py::Ref rest = py::Ref::steal(PyList_GetSlice(list, size_before, size));
  return add_copy_effect(EffectKind::kExtendList, owner, rest.get());
}

bool StructureBuilder::add_effects(const Journal& journal) {
  for (const Record& record : journal.records()) {
    PyObject* container = record.owner.get();
    Node* node = tracker_.provenance().find(container);
    if (node == nullptr) continue;
    if (record.rewritten && !tracker_.read_original_contents(*node)) return false;
    const std::uint32_t owner = add(container);
    bool added = owner != kFailed;
    switch (record.store) {
      case Store::kDict:
        added = added && add_dict_effects(record, owner);
        break;
      case Store::kList:
        added = added && add_list_effects(record, owner);
        break;
      case Store::kSet: {
        const py::Ref copy = py::Ref::steal(PySet_New(container));
        added = added && add_copy_effect(EffectKind::kReplaceSet, owner, copy.get());
        break;
      }
      case Store::kCell:
        added = added && add_effect(EffectKind::kSetCell, owner, nullptr, 0, PyCell_GET(container));
        break;
      case Store::kSlot: {
        const py::Ref now = py::Ref::steal(PyObject_GetAttr(container, record.name.get()));
        if (!now) PyErr_Clear();
        const EffectKind kind = now ? EffectKind::kSetSlot : EffectKind::kDeleteSlot;
        added = added && add_effect(kind, owner, record.name.get(), 0, now.get());
        break;
      }
    }
    if (!added) return false;
  }
  return true;
}

}  // namespace thunder::interpreter
