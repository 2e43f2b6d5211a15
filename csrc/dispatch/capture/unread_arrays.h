#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "interpreter/python/python_ref.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Arrays of NumPy that the program has made of tensors that it computes (`x.sin().numpy()`), and not looked into. What
/// it only returns or stores is made anew by each call, over the memory of its own tensor. As soon as some code looks
/// into one, it is filled with what the tensor holds, and the trace is tied to that.
class UnreadArrays {
 public:
  explicit UnreadArrays(tracer::Recorder& recorder) : recorder_(recorder) {}

  /// The array over the memory of a tensor of the trace (new reference); null without an exception where its contents
  /// are needed at once.
  PyObject* make(PyObject* tensor);
  /// A copy of what the tensor holds now, as `array.copy()` gives: by convention like `make`.
  PyObject* make_copy(const at::Tensor& tensor);
  /// As `TensorHooks` has them.
  bool look_into(PyObject* object);
  PyObject* tensor_shown_by(PyObject* array);
  [[nodiscard]] bool is_empty() const { return arrays_.empty(); }

 private:
  struct Array {
    py::Ref array;
    py::Ref tensor;
    at::Tensor memory;     ///< that the array lies in
    bool is_copy = false;  ///< the program has nothing else over the memory of the tensor
  };
  /// Enters the array over `memory`, which shows a tensor of the trace.
  PyObject* add(py::Ref tensor, at::Tensor memory, bool is_copy);
  [[nodiscard]] std::vector<Array>::iterator find(PyObject* array);

  tracer::Recorder& recorder_;
  std::vector<Array> arrays_;
};

}  // namespace thunder::dispatch
