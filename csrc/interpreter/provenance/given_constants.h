#pragma once

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interpreter/provenance/provenance.h"

namespace thunder::interpreter {

/// Numbers, strings and tuples of such that the program did not make. Equal ones are guarded as equal; where the
/// program hands one on, each call hands on its own.
class GivenConstants {
 public:
  /// Records the item of a tuple at an index.
  using ReadItem = std::function<void(Node& tuple, Py_ssize_t index, PyObject* item)>;
  GivenConstants(Provenance& provenance, ReadItem read_item)
      : provenance_(provenance), read_item_(std::move(read_item)) {}

  /// Notes the constants of a code object that the trace runs.
  void add_code(PyCodeObject* code) { codes_.push_back(py::Ref::share(reinterpret_cast<PyObject*>(code))); }
  /// Notes a tuple of constants, the defaults of a function, or a NaN, read from outside.
  void add(py::Borrowed value) { given_.push_back(py::Ref::share(value)); }
  /// Notes a read of a constant that is guarded by equality.
  void add_read(Node& owner, Read& read);

  /// Whether a code object that the trace ran holds this as a constant: it is the same object at each call.
  [[nodiscard]] bool is_code_constant(py::Borrowed value) const;
  /// Whether a tuple of constants, or a NaN, was read from outside, or is a constant of code: the program did not make
  /// it.
  [[nodiscard]] bool contains(py::Borrowed value) const;
  /// The node of a number, string or tuple of constants that was read from outside, from which each call takes its own:
  /// another equal object is another one. Guards that what held one object goes on holding one. Null: it was not read,
  /// or all equal objects are one.
  Node* node_of(py::Borrowed value);
  /// The program asks which object a string is: where it read an interned one, an equal one that is not interned is
  /// another object.
  void keep_interned(py::Borrowed value);

 private:
  void read_in_tuples(py::Borrowed value);
  void read_places(Node& tuple, py::Borrowed value);

  struct EqualRead {
    Node* owner;
    Read* read;
  };
  Provenance& provenance_;
  ReadItem read_item_;
  std::vector<py::Ref> codes_;
  std::vector<py::Ref> given_;
  std::unordered_map<const PyObject*, std::vector<EqualRead>> equal_reads_;  ///< by the object that was read
};

}  // namespace thunder::interpreter
