#pragma once

#include "interpreter/provenance/tracker.h"
#include "interpreter/provenance/tracker_native.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Arrays of NumPy from outside, of which the program makes tensors (`torch.from_numpy(array)`): the tensor over the
/// array's memory is an input of the trace, as a tensor from outside is, and each call makes its own. So the contents
/// are not guarded, as they are where other code looks at them.
class ArrayInputs {
 public:
  explicit ArrayInputs(tracer::Recorder& recorder) : recorder_(recorder) {}

  /// The convention of `TrackerOptions::convert`.
  int convert(interpreter::Tracker& tracker, PyObject* callable, const interpreter::NativeCall& call,
              PyObject** result);
  /// The convention of `TrackerOptions::convert_index`.
  PyObject* convert_index(interpreter::Tracker& tracker, PyObject* tensor, PyObject* index);

 private:
  /// The tensor of integers or truth values that an array is as an index; null, without an exception: it is none.
  PyObject* index_of(interpreter::Tracker& tracker, PyObject* array, bool is_in_tuple);
  /// The trace tensor over an array's memory (new reference); null, without an exception: there can be none.
  PyObject* lift(interpreter::Tracker& tracker, interpreter::Node& array);

  tracer::Recorder& recorder_;
};

}  // namespace thunder::dispatch
