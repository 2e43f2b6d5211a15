#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

/// The function of `thunder._python_backward` with this name; throws PendingError.
[[nodiscard]] py::Ref python_backward_function(const char* name);
/// Throws PendingError.
[[nodiscard]] py::Ref to_tuple(const std::vector<at::Tensor>& tensors);
/// The hooks in a dict of hooks, as a list; null with an exception set.
[[nodiscard]] py::Ref hooks_in(PyObject* dict);

}  // namespace thunder::dispatch
