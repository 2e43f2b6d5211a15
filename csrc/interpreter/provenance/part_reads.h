#pragma once

#include <cstdint>
#include <vector>

#include "interpreter/provenance/tracker_state.h"

namespace thunder::interpreter {

/// Notes on the reads of parts of the program that run once more, such as a backward.
class PartReads {
 public:
  explicit PartReads(const TrackerState& state) : state_(state) {}

  /// Until `end`, notes the variables of functions around that the program reads.
  void begin() { ++depth_; }
  void end();
  /// Whether these variables hold the objects that they held when the parts ended.
  [[nodiscard]] bool reads_same_variables() const;

  /// Until `end_trial`, notes what keeps the program that runs from being nothing but a computation.
  void begin_trial();
  /// Whether it wrote nothing and read nothing from outside but functions, classes and modules: what it computes is the
  /// same whenever it runs.
  [[nodiscard]] bool end_trial();

  void note(const Node& owner, py::Borrowed value);
  void note_type_attribute(const Node& owner, py::Borrowed name);
  void note_cell(py::Borrowed cell, py::Borrowed value);
  void note_write(WriteKind kind);
  /// The program, and not a library, asks for the grad mode, which is another one in a backward with create_graph.
  void note_grad_mode();

 private:
  /// Whether the class that gives `type` this attribute is one of a library.
  [[nodiscard]] bool is_of_library(PyTypeObject* type, py::Borrowed name) const;

  struct Trial {
    bool runs = false;
    bool has_read = false;
    std::uint64_t writes = 0;
  };
  struct Variable {
    py::Ref cell;
    py::Ref value;  ///< when the part ended that read it
    bool is_known = false;
  };
  const TrackerState& state_;
  Trial trial_;
  int depth_ = 0;
  std::vector<Variable> variables_;  ///< that were read in parts
};

}  // namespace thunder::interpreter
