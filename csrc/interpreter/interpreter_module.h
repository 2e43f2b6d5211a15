#pragma once

#include <Python.h>

namespace thunder::interpreter {

/// The callable behind `thunder.interpreter.interpret(callable)`: behaves as `callable`, interpreted at each call.
PyObject* make_interpreted(PyObject* callable);

/// Adds what this layer offers to Python to `module` (`interpret`); 0 or -1 with an exception. No torch, no pybind11.
int init_interpreter(PyObject* module);

}  // namespace thunder::interpreter
