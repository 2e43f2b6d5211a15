#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// The values of `case kind(…)`: a tuple of `positional` attributes and those in `keywords`; None when `subject` does
/// not match; null on errors. `observer` may be null.
PyObject* match_class(PyObject* subject, PyObject* kind, Py_ssize_t positional, PyObject* keywords, Observer* observer);
/// The values of `keys` in `mapping` as a tuple; None when one is missing; null on errors.
PyObject* match_keys(PyObject* mapping, PyObject* keys, Observer* observer);

}  // namespace thunder::interpreter
