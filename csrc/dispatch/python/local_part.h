#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

namespace thunder::dispatch {

/// Whether a tensor is a `DTensor`, or a subclass of it: a tensor of several processes, of which this one has a part.
[[nodiscard]] bool is_distributed(PyObject* tensor);

/// The part of a distributed tensor that this process has, without history. Throws PendingError.
[[nodiscard]] at::Tensor stored_part(PyObject* distributed);

/// The part as programs take it: its gradients become gradients of the distributed tensor. Any other tensor as it is.
[[nodiscard]] at::Tensor local_part(PyObject* tensor);

}  // namespace thunder::dispatch
