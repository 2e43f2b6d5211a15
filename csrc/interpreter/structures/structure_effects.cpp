#include <algorithm>

#include "interpreter/provenance/journal_restore.h"
#include "interpreter/python/slots.h"
#include "interpreter/structures/structure_builder.h"

namespace thunder::interpreter {
namespace {

bool is_written_key(const Record& record, py::Borrowed key) {
  for (const WrittenKey& written : record.keys) {
    if (written.key.get() == key) return true;
  }
  return false;
}

}  // namespace

bool StructureBuilder::add_effect(EffectKind kind, std::uint32_t owner, py::Borrowed key, py::Borrowed value) {
  Effect effect{kind, owner};
  if (key != nullptr) effect.key = add(key);
  if (value != nullptr) effect.value = add(value);
  structure_.effects_.push_back(effect);
  return effect.key != kFailed && effect.value != kFailed;
}

// `contents` is a fresh copy of the container, so that the template makes one too.
bool StructureBuilder::add_copy_effect(EffectKind kind, std::uint32_t owner, py::Ref contents) {
  if (!contents) return false;
  kept_.push_back(contents);
  const std::uint32_t part = add_composite(contents.get());
  structure_.effects_.push_back(Effect{kind, owner, 0, part});
  return part != kFailed;
}

// New keys stand in the order of the dict, whoever wrote them.
bool StructureBuilder::add_changed_items(const Record& record, std::uint32_t owner, py::Borrowed now) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(now, &position, &key, &value)) {
    const bool is_same = PyDict_GetItemWithError(record.before.get(), key) == value;
    if (is_same && !is_written_key(record, key)) continue;
    if (!add_effect(EffectKind::kSetItem, owner, key, value)) return false;
  }
  return PyErr_Occurred() == nullptr;
}

bool StructureBuilder::add_dict_effects(const Record& record, std::uint32_t owner, const py::Ref& now) {
  PyObject* before = record.before.get();
  // A key that was removed may stand elsewhere now.
  const bool keeps_order = std::ranges::none_of(record.keys, &WrittenKey::removed);
  if (record.rewritten && !(keeps_order && begins_with_keys(now.get(), before))) {
    return add_copy_effect(EffectKind::kReplaceDict, owner, now);
  }
  if (record.rewritten) return add_changed_items(record, owner, now.get());
  for (const WrittenKey& written : record.keys) {
    PyObject* key = written.key.get();
    PyObject* value = PyDict_GetItemWithError(now.get(), key);
    if (written.removed && !add_effect(EffectKind::kDeleteItem, owner, key, nullptr)) return false;
    if (value != nullptr && !add_effect(EffectKind::kSetItem, owner, key, value)) return false;
  }
  return PyErr_Occurred() == nullptr;
}

bool StructureBuilder::add_list_effects(const Record& record, std::uint32_t owner, const py::Ref& now) {
  PyObject* list = now.get();
  const Py_ssize_t size = PyList_GET_SIZE(list);
  const Py_ssize_t size_before = PyList_GET_SIZE(record.before.get());
  if (record.rewritten) return add_copy_effect(EffectKind::kReplaceList, owner, now);
  for (const WrittenKey& written : record.keys) {
    const Py_ssize_t index = PyLong_AsSsize_t(written.key.get());
    if (!add_effect(EffectKind::kSetListItem, owner, nullptr, PyList_GET_ITEM(list, index))) return false;
    structure_.effects_.back().index = index;
  }
  if (size == size_before) return true;
  return add_copy_effect(EffectKind::kExtendList, owner, py::Ref::steal(PyList_GetSlice(list, size_before, size)));
}

bool StructureBuilder::add_set_effects(const Record& record, std::uint32_t owner, const py::Ref& now) {
  PyObject* set = now.get();
  if (record.rewritten) return add_copy_effect(EffectKind::kReplaceSet, owner, now);
  for (const WrittenKey& written : record.keys) {
    const bool is_member = PySet_Contains(set, written.key.get()) == 1;
    const EffectKind kind = is_member ? EffectKind::kAddMember : EffectKind::kDiscardMember;
    if (!add_effect(kind, owner, written.key.get(), nullptr)) return false;
  }
  return true;
}

bool StructureBuilder::add_deque_effects(const Record& record, std::uint32_t owner, const py::Ref& now) {
  if (record.rewritten) return add_copy_effect(EffectKind::kReplaceDeque, owner, now);
  const Py_ssize_t size_before = PyList_GET_SIZE(record.before.get());
  if (PyList_SetSlice(now.get(), 0, size_before, nullptr) < 0) return false;
  return add_copy_effect(EffectKind::kExtendDeque, owner, now);
}

bool StructureBuilder::add_record(const Record& record, std::uint32_t owner, const py::Ref& now) {
  switch (record.store) {
    case Store::kDict:
      return add_dict_effects(record, owner, now);
    case Store::kList:
      return add_list_effects(record, owner, now);
    case Store::kSet:
      return add_set_effects(record, owner, now);
    case Store::kDeque:
      return add_deque_effects(record, owner, now);
    case Store::kCell:
      return add_effect(now ? EffectKind::kSetCell : EffectKind::kClearCell, owner, nullptr, now.get());
    case Store::kSlot:
      return add_effect(now ? EffectKind::kSetSlot : EffectKind::kDeleteSlot, owner, record.name.get(), now.get());
  }
  return false;
}

bool StructureBuilder::add_effects(Journal& journal) {
  for (Record& record : journal.records()) {
    PyObject* container = record.owner.get();
    Node* node = tracker_.provenance().find(container);
    if (node == nullptr) continue;
    node->is_written = true;
    for (const WrittenKey& written : record.keys) {
      if (record.store == Store::kDict && !record.rewritten) node->written_keys.push_back(written.key);
    }
    if (record.rewritten && !record.is_read && !tracker_.reads().read_original_contents(*node)) return false;
    const std::uint32_t owner = add(container);
    const py::Ref now = journal.left_in(record);
    if (PyErr_Occurred() != nullptr || owner == kFailed || !add_record(record, owner, now)) return false;
  }
  return journal.require_own_writes();
}

bool StructureBuilder::add_call_effect(py::Borrowed callable, py::Borrowed arguments, py::Borrowed keywords) {
  const py::Ref none = py::Ref::steal(PyDict_New());
  kept_.push_back(none);
  Effect effect{EffectKind::kCall, add(callable), 0, 0, 0};
  effect.key = add(arguments);
  effect.value = none ? add(keywords == nullptr ? none.get() : keywords) : kFailed;
  structure_.effects_.push_back(effect);
  return effect.owner != kFailed && effect.key != kFailed && effect.value != kFailed;
}

}  // namespace thunder::interpreter
