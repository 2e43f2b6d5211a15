#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "interpreter/python_ref.h"

namespace thunder::interpreter {

enum class Store : std::uint8_t { kDict, kList, kSet, kCell, kSlot };

/// An external container (or one slot of an object) that the program writes to.
struct Record {
  Store store;
  py::Ref owner;
  py::Ref name;               ///< of the slot
  py::Ref before;             ///< copy of the container, or what the cell or slot held (null: empty)
  std::vector<py::Ref> keys;  ///< dict keys and list indices that were written, in order, each once
  bool appended = false;      ///< a list that grew at its end
  bool rewritten = false;     ///< written in a way that `keys` and `appended` do not tell
};

/// Sets (null: deletes) what lies behind a C descriptor of an object, or an attribute of a type; 0 or -1.
int set_slot(py::Borrowed owner, py::Borrowed name, py::Borrowed value);

/// Remembers how external objects were before the program wrote to them. Functions that return `bool` return false with
/// a Python exception set.
class Journal {
 public:
  ~Journal() { rollback(); }

  /// Before `owner[key]` of a dict is set or deleted.
  bool before_dict_item(py::Borrowed dict, py::Borrowed key);
  /// Before `owner[index]` of a list is set.
  bool before_list_item(py::Borrowed list, Py_ssize_t index);
  bool before_append(py::Borrowed list);
  /// Before anything changes in a list, dict or set; other objects are refused with false and no exception.
  bool before_contents(py::Borrowed container);
  bool before_cell(py::Borrowed cell);
  bool before_slot(py::Borrowed owner, py::Borrowed name);

  [[nodiscard]] const Record* find(py::Borrowed container) const;
  [[nodiscard]] const Record* find_slot(py::Borrowed owner, py::Borrowed name) const;
  [[nodiscard]] bool empty() const { return records_.empty(); }
  [[nodiscard]] const std::deque<Record>& records() const { return records_; }

  /// Puts everything back as it was, the newest record first. The journal is empty afterwards.
  void rollback();

 private:
  Record* open(py::Borrowed container, Store store);

  std::deque<Record> records_;
  std::unordered_map<const PyObject*, Record*> by_owner_;
};

}  // namespace thunder::interpreter
