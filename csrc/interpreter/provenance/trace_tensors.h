#pragma once

#include "interpreter/provenance/reads.h"

namespace thunder::interpreter {

/// Chooses the object that the program sees for a value: a trace tensor for one from outside, most often itself.
class TraceTensors {
 public:
  TraceTensors(TrackerState& state, Reads& reads) : state_(state), reads_(reads) {}

  /// The object that the program sees for `value` (stolen): the trace tensor of a real tensor, everything else itself.
  PyObject* present(PyObject* value);
  /// As above, for what `read` (null: nothing was recorded) gave.
  PyObject* present(PyObject* value, const Read* read);
  /// As `Observer` has them.
  PyObject* operand(PyObject* value, PyObject* other, bool is_key);
  PyObject* given(PyObject* value);
  /// A copy of a container with trace tensors in place of real tensors.
  py::Ref substitute(py::Borrowed value, int depth = 0);

  /// Guards `name` of the tensor behind a trace tensor and tells the trace tensor, once. False with an exception set.
  bool load_tensor_state(py::Borrowed traced, py::Borrowed name);
  /// Reads `name` of the tensor behind a trace tensor, guarded (new reference); null with an exception, or without one
  /// when there is no such tensor.
  PyObject* read_behind(py::Borrowed traced, py::Borrowed name);
  void read_attribute_behind(py::Borrowed traced, py::Borrowed name, py::Borrowed value);
  bool read_all_attributes_behind(py::Borrowed traced);
  /// Guards which names of its class attributes of the tensor behind a trace tensor hide.
  void read_hidden_names_behind(py::Borrowed traced);
  /// `value` (stolen) is what the trace tensor says by itself.
  PyObject* read_tensor_attribute(py::Borrowed traced, py::Borrowed name, PyObject* value);

  /// Whether no frame of the program is left: what returns is what the call gives.
  [[nodiscard]] bool is_in_caller() const { return reinterpret_cast<PyObject*>(PyEval_GetFrame()) == caller_.get(); }

 private:
  [[nodiscard]] bool is_frame_of_caller(py::Borrowed value) const;
  /// Whether operators of `object` look into the other operand.
  [[nodiscard]] bool looks_into_operands(py::Borrowed object) const;
  [[nodiscard]] bool takes_plain_numbers(py::Borrowed object) const;
  [[nodiscard]] Node* dict_behind(py::Borrowed traced);

  TrackerState& state_;
  Reads& reads_;
  /// The frame that the traced function is called from, or null.
  py::Ref caller_ = py::Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
};

}  // namespace thunder::interpreter
