#pragma once

#include <Python.h>

namespace thunder::dispatch {

/// `tensor[key]` where sizes of the trace are among the indices, as calls of `select`: PyTorch's indexing would look at
/// the numbers (new reference). Null without an exception: the key holds none, something besides that is no int and
/// not all of a dimension, or an index beyond the dimension's size.
PyObject* select_at_sizes(PyObject* tensor, PyObject* key);

}  // namespace thunder::dispatch
