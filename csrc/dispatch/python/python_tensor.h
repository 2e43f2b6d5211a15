#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include "tracer/layers_at_sizes.h"

namespace thunder::dispatch {

// PyTorch's header for this brings pybind11 along, whose functions each source that includes it compiles anew (9 s):
// python_tensor.cpp alone does.

/// Whether an object is a tensor, without running a metaclass's code.
[[nodiscard]] bool is_tensor(PyObject* object);
/// The tensor of an object for which `is_tensor` holds.
[[nodiscard]] const at::Tensor& unpack_tensor(PyObject* object);
/// The Python object of a tensor: new reference, or null with an exception set. None for an undefined tensor.
[[nodiscard]] PyObject* wrap_tensor(const at::Tensor& tensor);

/// A tensor of a functorch level: something that `torch.func` made of another tensor.
[[nodiscard]] inline bool is_functorch_wrapper(const at::Tensor& tensor) { return tracer::is_layered(tensor); }

}  // namespace thunder::dispatch
