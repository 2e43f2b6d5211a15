#include "interpreter/provenance/journal.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

std::optional<Store> store_of(py::Borrowed container) {
  if (PyDict_Check(container)) return Store::kDict;
  if (PyList_Check(container)) return Store::kList;
  if (PySet_Check(container)) return Store::kSet;
  if (is_deque(container)) return Store::kDeque;
  return std::nullopt;
}

std::vector<WrittenKey>::iterator find_key(std::vector<WrittenKey>& keys, py::Borrowed key) {
  const auto same = std::ranges::find_if(keys, [&](const WrittenKey& known) { return known.key.get() == key; });
  if (same != keys.end()) return same;
  const Py_hash_t hash = PyObject_Hash(key);
  // As a dict does: keys are compared only when their hashes are equal (`==` of tensors is not about keys).
  return std::ranges::find_if(keys, [&](const WrittenKey& known) {
    return Py_TYPE(known.key.get()) == Py_TYPE(key) && PyObject_Hash(known.key.get()) == hash &&
           PyObject_RichCompareBool(known.key.get(), key, Py_EQ) == 1;
  });
}

/// Enters a write to `key`, which the container holds now (`present`) or not.
bool note_key(Record& record, py::Borrowed key, int present, bool removes) {
  if (present < 0) return false;
  auto place = find_key(record.keys, key);
  if (PyErr_Occurred() != nullptr) return false;
  if (place == record.keys.end()) {
    record.keys.push_back({py::Ref::share(key), removes});
  } else if (removes) {
    place->removed = true;
  } else if (present == 0) {
    std::rotate(place, place + 1, record.keys.end());
  }
  return true;
}

}  // namespace

Record& Journal::add(Record record) {
  if (locate_) record.location = locate_();
  return records_.emplace_back(std::move(record));
}

Record* Journal::open(py::Borrowed container, Store store) {
  ++write_count_;
  if (const auto found = by_owner_.find(container); found != by_owner_.end()) return found->second;
  py::Ref before = store == Store::kCell ? py::Ref::steal(PyCell_Get(container)) : copy_of(container, store);
  if (!before && store != Store::kCell) return nullptr;
  Record& record = add(Record{store, py::Ref::share(container), {}, std::move(before), {}});
  by_owner_.emplace(container, &record);
  return &record;
}

bool Journal::before_dict_item(py::Borrowed dict, py::Borrowed key, bool removes) {
  Record* record = open(dict, Store::kDict);
  return record != nullptr && note_key(*record, key, PyDict_Contains(dict, key), removes);
}

bool Journal::before_set_member(py::Borrowed set, py::Borrowed member, bool removes) {
  Record* record = open(set, Store::kSet);
  return record != nullptr && note_key(*record, member, PySet_Contains(set, member), removes);
}

bool Journal::before_list_item(py::Borrowed list, Py_ssize_t index) {
  Record* record = open(list, Store::kList);
  if (record == nullptr) return false;
  if (record->appended || record->rewritten) return record->rewritten = true;
  if (record->has_written(index)) return true;
  record->keys.push_back({py::Ref::steal(PyLong_FromSsize_t(index))});
  return true;
}

bool Journal::before_append(py::Borrowed sequence) {
  const bool in_deque = is_deque(sequence);
  Record* record = open(sequence, in_deque ? Store::kDeque : Store::kList);
  if (record == nullptr) return false;
  record->appended = true;
  // One of a limited length loses its first items.
  record->rewritten |= in_deque && is_limited_deque(sequence);
  return true;
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
  ++write_count_;
  if (find_slot(owner, name) != nullptr) return true;
  py::Ref before = get_slot(owner, name);
  if (!before && PyErr_Occurred() != nullptr) return false;
  add(Record{Store::kSlot, py::Ref::share(owner), py::Ref::share(name), std::move(before), {}});
  return true;
}

bool Journal::watch(py::Borrowed container) {
  const std::optional<Store> store = store_of(container);
  if (!store) return false;
  py::Ref before = copy_of(container, *store);
  if (!before) return false;
  watched_.emplace_back(py::Ref::share(container), std::move(before));
  return true;
}

void Journal::end_watch() {
  const auto watched = std::exchange(watched_, {});
  for (const auto& [container, before] : watched) {
    if (holds_same(container.get(), before.get())) continue;
    const auto [place, is_new] = by_owner_.try_emplace(container.get(), nullptr);
    if (is_new) place->second = &add(Record{*store_of(container.get()), container, {}, before, {}});
    place->second->rewritten = true;
  }
}

void Journal::note_memory(py::Borrowed object, py::Borrowed state) {
  memory_.emplace_back(py::Ref::share(object), py::Ref::share(state));
}

PyObject* Journal::written_memory() const {
  for (const auto& [object, state] : memory_) {
    if (!has_state(object.get(), StateKind::kBuffer, state.get())) return object.get();
  }
  return nullptr;
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
  const py::SavedError pending;
  end_watch();
  for (const Record& record : std::views::reverse(records_)) restore(record);
  for (const auto& [object, state] : std::exchange(memory_, {})) {
    const bool is_written = !has_state(object.get(), StateKind::kBuffer, state.get());
    if (is_written && restore_buffer(object.get(), state.get()) < 0) PyErr_Clear();
  }
  by_owner_.clear();
  records_.clear();
}

Journal::~Journal() { rollback(); }

}  // namespace thunder::interpreter
