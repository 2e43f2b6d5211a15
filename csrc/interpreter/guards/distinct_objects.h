#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "interpreter/guards/guard_graph.h"

namespace thunder::interpreter {

/// Objects that a program writes to, and others of their type that it reads: no two of them may be one object. Looks at
/// each address once.
class DistinctObjects {
 public:
  /// Both are nodes of a guard graph.
  DistinctObjects(std::vector<std::uint32_t> written, std::vector<std::uint32_t> read, Candidates needed_by);

  Candidates needed_by;

  [[nodiscard]] bool is_about_same(const DistinctObjects& other) const {
    return written_ == other.written_ && read_ == other.read_;
  }
  [[nodiscard]] std::size_t size() const { return written_.size(); }
  [[nodiscard]] bool holds(PyObject* const* registers);

 private:
  /// The place of an object in the table, or the empty one where it would be.
  [[nodiscard]] PyObject*& place_of(PyObject* object);

  std::vector<std::uint32_t> written_;
  std::vector<std::uint32_t> read_;
  std::vector<PyObject*> table_;  ///< a hash table of addresses, which are never looked into
};

}  // namespace thunder::interpreter
