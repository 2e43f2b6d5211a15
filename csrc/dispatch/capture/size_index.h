#pragma once

#include <Python.h>

#include <optional>

#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

/// A part of a tensor, and the indices that are left to apply to it; null: there are none.
struct PartAtSizes {
  py::Ref tensor;
  py::Ref rest;
};

/// `tensor[key]` where sizes of the trace are among the indices, as calls of `select`: PyTorch's indexing would look at
/// the numbers. Nothing, perhaps with an exception set: the key holds none before what takes no dimension or several of
/// them, or an index beyond the dimension's size.
std::optional<PartAtSizes> select_at_sizes(PyObject* tensor, PyObject* key);

}  // namespace thunder::dispatch
