#pragma once

#include <algorithm>
#include <cstdint>
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

/// An external container (or one slot of an object) that the program writes to.
struct Record {
  Store store;
  py::Ref owner;
  py::Ref name;    ///< name of the slot
  py::Ref before;  ///< copy of the container, or what the cell or slot held (null: empty)
  /// Each key once, in the order in which new ones stand in the dict now. Writes to them look at nothing.
  std::vector<WrittenKey> keys;
  bool appended = false;          ///< a list or deque that grew at its end
  bool rewritten = false;         ///< written in a way that `keys` and `appended` do not tell
  bool is_read = false;           ///< all that was in a list is read, and lies in it as the program sees it
  ir::SourceLocation location{};  ///< where the first write is

  // Other threads may write to the container, too, so what the program wrote is known by itself.
  std::vector<py::Ref> added{};  ///< items that the program appended
  py::Ref after{};               ///< contents that it left in a cell, slot or `rewritten` container; may be null
  Py_ssize_t size = 0;           ///< length of a list or deque, when a write was announced
  bool is_open = false;          ///< a write was announced, and nobody has looked at what it did
  bool is_unclear = false;       ///< another thread may have written between a write and the look at it
  // `gil_switches` when a write was announced, and when the container last held nothing but what the program left.
  unsigned long announced_at = 0;
  mutable unsigned long checked_at = 0;

  /// Whether the program wrote to an index of a list.
  [[nodiscard]] bool has_written(Py_ssize_t index) const {
    return std::ranges::any_of(keys,
                               [&](const WrittenKey& known) { return PyLong_AsSsize_t(known.key.get()) == index; });
  }
};

}  // namespace thunder::interpreter
