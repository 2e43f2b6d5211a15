#pragma once

#include "interpreter/provenance/trace_tensors.h"

namespace thunder::interpreter {

/// Enters writes to objects from outside into the journal before they happen, and refuses those that it cannot repeat.
/// All return false with an exception set.
class Writes {
 public:
  Writes(TrackerState& state, Reads& reads, TraceTensors& tensors) : state_(state), reads_(reads), tensors_(tensors) {}

  /// As `Observer::before_write`.
  bool before(PyObject* owner, WriteKind kind, PyObject* key);
  bool write_attribute(py::Borrowed owner, py::Borrowed name, bool removes);
  bool write_item(Node& container, py::Borrowed key, bool removes);
  bool write_contents(py::Borrowed owner);

 private:
  bool write_dict_item(Node& dict, py::Borrowed key, bool removes);

  TrackerState& state_;
  Reads& reads_;
  TraceTensors& tensors_;
};

}  // namespace thunder::interpreter
