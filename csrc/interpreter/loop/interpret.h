#pragma once

#include <Python.h>

#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// Calls `callable(*arguments, **keywords)`; every Python function that runs until it returns, on this thread, is
/// executed by the interpreter (callbacks from C code too). `observer` may be null. `arguments` is a tuple, `keywords`
/// a dict or null. Returns a new reference, or null with the Python exception set. Re-entrant: an inner call has its
/// own observer (null suspends the outer one's), and the outer one is back when it returns.
PyObject* interpret(PyObject* callable, PyObject* arguments, PyObject* keywords, Observer* observer);

/// Has the resumptions of a generator, coroutine or asynchronous generator interpreted until it dies, wherever they
/// come from; 0 or -1 with an exception. Other objects are left alone.
int adopt_generator(PyObject* generator);

}  // namespace thunder::interpreter
