#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::interpreter {

enum class Store : std::uint8_t { kDict, kList, kSet, kDeque, kCell, kSlot };

/// A key of a dict, a member of a set or an index of a list that the program wrote to.
struct WrittenKey {
  py::Ref key;
  bool removed = false;  ///< at some time; a dict's key that came back stands at the end
  /// As the program left it: the value, a member of a set itself, or null for one that is gone.
  py::Ref value{};
};

/// Keys, in an order that is known. A key is found by its hash, so that a thousand writes look at a thousand keys.
class WrittenKeys {
 public:
  WrittenKeys() = default;
  ~WrittenKeys() = default;
  // Its parts point at each other. Those of a list stay where they are when it is moved.
  WrittenKeys(const WrittenKeys&) = delete;
  WrittenKeys& operator=(const WrittenKeys&) = delete;
  WrittenKeys(WrittenKeys&&) = default;
  WrittenKeys& operator=(WrittenKeys&&) = default;
  [[nodiscard]] auto begin() const { return keys_.begin(); }
  [[nodiscard]] auto end() const { return keys_.end(); }
  [[nodiscard]] bool empty() const { return keys_.empty(); }
  /// The key that is this one, or equal to it as keys of a dict are; null: there is none, or an exception is set.
  [[nodiscard]] const WrittenKey* find(py::Borrowed key) const;
  /// The program writes to a key, which may be there already. `comes_back`: one that is stands at the end from now on.
  /// False with an exception set.
  bool note(py::Borrowed key, bool removes, bool comes_back);
  /// Nobody knows what the program left.
  void forget_values();
  /// The keys whose values are not known since they were asked for last.
  [[nodiscard]] std::vector<WrittenKey*> take_unknown() { return std::exchange(unknown_, {}); }

 private:
  using Place = std::list<WrittenKey>::iterator;
  [[nodiscard]] std::optional<Place> place_of(py::Borrowed key, Py_hash_t hash) const;
  void forget_value(WrittenKey& key);

  std::list<WrittenKey> keys_;
  std::unordered_multimap<Py_hash_t, Place> by_hash_;
  std::vector<WrittenKey*> unknown_;
};

/// An external container (or one slot of an object) that the program writes to.
struct Record {
  Store store;
  py::Ref owner;
  py::Ref name;    ///< name of the slot
  py::Ref before;  ///< copy of the container, or what the cell or slot held (null: empty)
  /// Each key once, in the order in which new ones stand in the dict now. Writes to them look at nothing.
  WrittenKeys keys;
  bool appended = false;          ///< a list or deque that grew at its end
  bool rewritten = false;         ///< written in a way that `keys` and `appended` do not tell
  bool is_read = false;           ///< all that was in a list is read, and lies in it as the program sees it
  ir::SourceLocation location{};  ///< where the first write is

  // Other threads may write to the container, too, so what the program wrote is known by itself.
  std::vector<py::Ref> added{};  ///< items that the program appended
  py::Ref after{};               ///< contents that it left in a cell, slot or `rewritten` container; may be null
  Py_ssize_t size = 0;           ///< length of a list or deque, when a write was announced
  bool is_open = false;          ///< a write was announced, and nobody has looked at what it did
  bool is_unclear = false;       ///< others may have written between a write and the look at it
  // `interruption_count` when a write was announced, and when the container last held nothing but what the program
  // left.
  unsigned long announced_at = 0;
  mutable unsigned long checked_at = 0;

  /// Whether the program wrote to an index of a list.
  [[nodiscard]] bool has_written(Py_ssize_t index) const {
    return keys.find(py::Ref::steal(PyLong_FromSsize_t(index)).get()) != nullptr;
  }
};

}  // namespace thunder::interpreter
