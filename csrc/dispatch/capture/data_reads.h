#pragma once

#include <memory>
#include <optional>

#include "dispatch/capture/ints_in_tensors.h"
#include "dispatch/capture/unread_arrays.h"
#include "dispatch/numbers/traced_number.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/provenance/tracker_native.h"

namespace thunder::dispatch {

/// Calls of C code that take data out of tensors (`item`, `tolist`, `numpy`, `float(tensor)`), or take numbers that
/// came from there: functions of PyTorch get tensors that stand for them, all other code the numbers themselves.
class DataReads {
 public:
  DataReads(std::shared_ptr<NumberTrace> trace, UnreadArrays& arrays) : trace_(std::move(trace)), arrays_(arrays) {}

  /// The convention of `TrackerOptions::intercept`.
  int intercept(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
  /// Methods of an array that nobody has looked into, by the tensor that it shows; the same convention.
  int convert_array(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
  /// The counts of steps of `torch.optim`, which are read as in eager: as numbers of Python, in double precision.
  void add_substitutes(interpreter::TrackerOptions& options);
  /// `tensor.item()`, as a traced number or a size.
  PyObject* item(PyObject* tensor);
  /// `torch.tensor(list)`.
  PyObject* tensor_of(PyObject* list);

 private:
  /// Whether a trace tensor is of this trace, and not of a part that a transform records: there, the dispatcher sees
  /// what is read.
  [[nodiscard]] bool is_of_trace(PyObject* tensor) const;
  PyObject* to_list(PyObject* tensor);
  PyObject* convert(PyObject* tensor, PyTypeObject* type);
  PyObject* with_contents(PyObject* callable, const interpreter::NativeCall& call);
  /// The argument with numbers in the place of tensors that hold an integer, also in a list or tuple (new reference).
  PyObject* with_numbers(PyObject* argument);
  [[nodiscard]] bool has_ints(PyObject* argument) const;
  /// A function of PyTorch that takes ints and gets tensors that hold one.
  int call_with_ints(PyObject* callable, const interpreter::NativeCall& call, PyObject** result);
  /// `type(x)`, `float(x)` and `int(x)`; nullopt: another class, or another argument.
  std::optional<PyObject*> call_type(PyTypeObject* type, PyObject* argument);
  /// Methods that take data out of a tensor; nullopt: another method.
  std::optional<PyObject*> read(PyObject* callable, const interpreter::NativeCall& call);

  std::shared_ptr<NumberTrace> trace_;
  UnreadArrays& arrays_;
  IntsInTensors ints_;
};

}  // namespace thunder::dispatch
