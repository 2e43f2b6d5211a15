#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/journal.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "interpreter/loop/signal_handlers.h"
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

/// Enters a write to `key`, which the container holds now (`present`) or not.
bool note_key(Record& record, py::Borrowed key, int present, bool removes) {
  return present >= 0 && record.keys.note(key, removes, /*comes_back=*/!removes && present == 0);
}

Py_ssize_t length_of(const Record& record) {
  return record.store == Store::kList || record.store == Store::kDeque ? Py_SIZE(record.owner.get()) : 0;
}

/// Notes what the container holds for the keys that the program wrote to.
void note_values(Record& record) {
  PyObject* owner = record.owner.get();
  for (WrittenKey* const known : record.keys.take_unknown()) {
    WrittenKey& written = *known;
    PyObject* key = written.key.get();
    if (record.store == Store::kDict) written.value = py::Ref::share(PyDict_GetItemWithError(owner, key));
    if (record.store == Store::kSet && PySet_Contains(owner, key) == 1) written.value = written.key;
    const Py_ssize_t index =
        record.store == Store::kList ? PyLong_AsSsize_t(key) : PyList_GET_SIZE(record.before.get());
    if (record.store == Store::kList && index < Py_SIZE(owner)) {
      written.value = py::Ref::share(PyList_GET_ITEM(owner, index));
    }
  }
}

bool is_slot(const Record& record, py::Borrowed owner, py::Borrowed name) {
  return record.store == Store::kSlot && record.owner.get() == owner && record.name.get() == name;
}

/// Whether what a rewriting of a container leaves is copied, so that writes of other threads can be told from it. There
/// may be many such writes to a large one.
bool is_copied(const Record& record) {
  constexpr Py_ssize_t kLarge = 4096;
  const bool has_other_threads = PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != nullptr;
  return has_other_threads || PyObject_Size(record.before.get()) < kLarge;
}

}  // namespace

std::optional<WrittenKeys::Place> WrittenKeys::place_of(py::Borrowed key, Py_hash_t hash) const {
  // As a dict does: keys are compared only when their hashes are equal (`==` of tensors is not about keys).
  std::vector<Place> places;
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto each = begin; each != end; ++each) places.push_back(each->second);
  for (const Place& place : places) {
    if (place->key.get() == key) return place;
  }
  for (const Place& place : places) {
    if (Py_TYPE(place->key.get()) != Py_TYPE(key)) continue;
    const int is_equal = PyObject_RichCompareBool(place->key.get(), key, Py_EQ);
    if (is_equal != 0) return is_equal > 0 ? std::optional(place) : std::nullopt;
  }
  return std::nullopt;
}

const WrittenKey* WrittenKeys::find(py::Borrowed key) const {
  const Py_hash_t hash = keys_.empty() ? -1 : PyObject_Hash(key);
  const auto place = hash == -1 ? std::nullopt : place_of(key, hash);
  return place ? &**place : nullptr;
}

bool WrittenKeys::note(py::Borrowed key, bool removes, bool comes_back) {
  const Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) return false;
  auto place = place_of(key, hash);
  if (PyErr_Occurred() != nullptr) return false;
  if (!place) {
    place = by_hash_.emplace(hash, keys_.insert(keys_.end(), WrittenKey{py::Ref::share(key)}))->second;
  } else if (comes_back) {
    keys_.splice(keys_.end(), keys_, *place);
  }
  (*place)->removed |= removes;
  forget_value(**place);
  return true;
}

void WrittenKeys::forget_value(WrittenKey& key) {
  key.value = nullptr;
  unknown_.push_back(&key);
}

void WrittenKeys::forget_values() {
  for (WrittenKey& key : keys_) forget_value(key);
}

void Journal::announce(Record& record) {
  // One write within another of the same container, or one that failed. Items of a dict may be announced together.
  record.is_unclear |= record.is_open && (record.store != Store::kDict || record.rewritten);
  if (!record.is_open) {
    record.announced_at = interruption_count();
    record.size = length_of(record);
  }
  record.is_open = true;
  record.after = nullptr;  // objects that the program drops now die as they would without a journal
  latest_ = &record;
}

void Journal::settle(Record& record) {
  if (!std::exchange(record.is_open, false)) return;
  const py::SavedError pending;
  record.is_unclear |= interruption_count() != record.announced_at;
  if (record.rewritten) {
    if (is_copied(record)) record.after = contents_of(record);
    record.added.clear();
  } else if (record.store == Store::kCell || record.store == Store::kSlot) {
    record.after = contents_of(record);
  } else {
    note_values(record);
    const py::Ref items = !record.appended               ? py::Ref()
                          : record.store == Store::kList ? record.owner
                                                         : contents_of(record);
    for (Py_ssize_t i = record.size; items && i < PyList_GET_SIZE(items.get()); ++i) {
      record.added.push_back(py::Ref::share(PyList_GET_ITEM(items.get(), i)));
    }
  }
  PyErr_Clear();
}

void Journal::after_write(py::Borrowed container) {
  const auto found = by_owner_.find(container);
  if (found != by_owner_.end()) settle(*found->second);
}

void Journal::note_question(const Record& record) { is_disturbed_ = is_disturbed_ || holds_others(record); }

void Journal::note_item(const Record& record, py::Borrowed key, py::Borrowed value) {
  if (record.rewritten || interruption_count() == record.checked_at) return note_question(record);
  const WrittenKey* const known = record.keys.find(key);
  is_disturbed_ |= known == nullptr || known->value.get() != value;
}

py::Ref Journal::left_in(Record& record) {
  settle(record);
  if (interruption_count() == record.checked_at) return contents_of(record);
  const bool depends_on_all = record.rewritten || (record.store == Store::kList && !record.keys.empty());
  is_disturbed_ |= record.is_unclear || (depends_on_all && holds_others(record));
  return require_own_writes() ? with_writes(record) : py::Ref();
}

bool Journal::require_own_writes() const {
  if (!is_disturbed_) return true;
  PyErr_SetString(PyExc_NotImplementedError,
                  "thunder.jit: while the function is traced, another thread, or a handler of a signal, writes to a "
                  "container or object that the function writes to, too");
  return false;
}

void Journal::take_others(Record& record) {
  if (!holds_others(record)) return;
  is_disturbed_ = true;
  py::Ref others = contents_of(record);
  if (!others) return PyErr_Clear();
  withdraw(record, others.get());
  record.before = std::move(others);
}

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
  record.checked_at = interruption_count();
  return &record;
}

bool Journal::before_dict_item(py::Borrowed dict, py::Borrowed key, bool removes) {
  Record* record = open(dict, Store::kDict);
  if (record == nullptr || !note_key(*record, key, PyDict_Contains(dict, key), removes)) return false;
  return announce(*record), true;
}

bool Journal::before_set_member(py::Borrowed set, py::Borrowed member, bool removes) {
  Record* record = open(set, Store::kSet);
  if (record == nullptr || !note_key(*record, member, PySet_Contains(set, member), removes)) return false;
  return announce(*record), true;
}

bool Journal::before_list_item(py::Borrowed list, Py_ssize_t index) {
  Record* record = open(list, Store::kList);
  if (record == nullptr) return false;
  if (record->appended || record->rewritten) return rewrite(*record), true;
  py::Ref key = py::Ref::steal(PyLong_FromSsize_t(index));
  if (!key || !note_key(*record, key.get(), /*present=*/1, /*removes=*/false)) return false;
  return announce(*record), true;
}

void Journal::rewrite(Record& record) {
  settle(record);
  take_others(record);
  record.rewritten = true;
  record.keys.forget_values();
  record.added.clear();
  announce(record);
}

bool Journal::before_append(py::Borrowed sequence) {
  const bool in_deque = is_deque(sequence);
  Record* record = open(sequence, in_deque ? Store::kDeque : Store::kList);
  if (record == nullptr) return false;
  record->appended = true;
  // One of a limited length loses its first items.
  if (record->rewritten || (in_deque && is_limited_deque(sequence))) return rewrite(*record), true;
  return announce(*record), true;
}

bool Journal::before_contents(py::Borrowed container) {
  const std::optional<Store> store = store_of(container);
  if (!store) return false;
  Record* record = open(container, *store);
  if (record != nullptr) rewrite(*record);
  return record != nullptr;
}

bool Journal::before_cell(py::Borrowed cell) {
  Record* record = open(cell, Store::kCell);
  if (record != nullptr) announce(*record);
  return record != nullptr || PyErr_Occurred() == nullptr;
}

bool Journal::before_slot(py::Borrowed owner, py::Borrowed name) {
  ++write_count_;
  const auto is_known = [&](const Record& record) { return is_slot(record, owner, name); };
  if (const auto known = std::ranges::find_if(records_, is_known); known != records_.end()) {
    return announce(*known), true;
  }
  py::Ref before = get_slot(owner, name);
  if (!before && PyErr_Occurred() != nullptr) return false;
  Record& record = add(Record{Store::kSlot, py::Ref::share(owner), py::Ref::share(name), std::move(before), {}});
  record.checked_at = interruption_count();
  return announce(record), true;
}

bool Journal::watch(py::Borrowed container) {
  const std::optional<Store> store = store_of(container);
  if (!store) return false;
  if (const Record* known = find(container)) note_question(*known);
  py::Ref before = copy_of(container, *store);
  if (!before) return false;
  watched_.emplace_back(py::Ref::share(container), std::move(before));
  watched_at_ = interruption_count();
  return true;
}

void Journal::end_watch() {
  const auto watched = std::exchange(watched_, {});
  for (const auto& [container, before] : watched) {
    if (holds_same(container.get(), before.get())) continue;
    if (interruption_count() != watched_at_) {
      is_disturbed_ = true;  // it or another thread
      continue;
    }
    const auto [place, is_new] = by_owner_.try_emplace(container.get(), nullptr);
    if (is_new) {
      place->second = &add(Record{*store_of(container.get()), container, {}, before, {}});
      place->second->checked_at = watched_at_;
    }
    rewrite(*place->second);
    settle(*place->second);
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

const Record* Journal::find_for_read(py::Borrowed container) {
  const Record* record = find(container);
  if (record != nullptr) note_question(*record);
  return record;
}

const Record* Journal::find_slot(py::Borrowed owner, py::Borrowed name) const {
  for (const Record& record : records_) {
    if (is_slot(record, owner, name)) return &record;
  }
  return nullptr;
}

void Journal::rollback() {
  const py::SavedError pending;
  const SignalHold hold(/*always=*/true);  // keys may have a `__hash__` in Python, which runs handlers
  end_watch();
  for (Record& record : std::views::reverse(records_)) {
    settle(record);
    if (holds_others(record)) {
      withdraw(record, record.owner.get());
    } else {
      restore(record);
    }
  }
  for (const auto& [object, state] : std::exchange(memory_, {})) {
    const bool is_written = !has_state(object.get(), StateKind::kBuffer, state.get());
    if (is_written && restore_buffer(object.get(), state.get()) < 0) PyErr_Clear();
  }
  by_owner_.clear();
  latest_ = nullptr;
  records_.clear();
}

Journal::~Journal() { rollback(); }

}  // namespace thunder::interpreter
