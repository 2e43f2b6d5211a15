#pragma once

#include <Python.h>

namespace thunder::interpreter {

/// `record_events(callable, *arguments)`: calls it under an observer that changes nothing and writes down what it sees.
/// Returns `(result, events)`; an event is a tuple of its name and parts. For tests of the events themselves.
PyObject* record_events(PyObject* module, PyObject* arguments);

}  // namespace thunder::interpreter
