#pragma once

#include <Python.h>

#include "interpreter/observer.h"

namespace thunder::interpreter {

/// Calls `callable(*arguments, **keywords)`; every Python function that runs until it returns, on this thread, is
/// executed by the interpreter (callbacks from C code too). `observer` may be null. `arguments` is a tuple, `keywords`
/// a dict or null. Returns a new reference, or null with the Python exception set. Re-entrant: an inner call has its
/// own observer (null suspends the outer one's), and the outer one is back when it returns.
PyObject* interpret(PyObject* callable, PyObject* arguments, PyObject* keywords, Observer* observer);

/// Runs what follows on this thread natively, without the observer, until destroyed: for hooks that call Python
/// themselves.
class NativeScope {
 public:
  NativeScope();
  ~NativeScope();
  NativeScope(const NativeScope&) = delete;
  NativeScope& operator=(const NativeScope&) = delete;

 private:
  void* saved_;
};

/// The callable behind `thunder.interpreter.interpret(callable)`: behaves as `callable`, interpreted at each call.
PyObject* make_interpreted(PyObject* callable);

/// Adds what this layer offers to Python to `module` (`interpret`); 0 or -1 with an exception. No torch, no pybind11.
int init_interpreter(PyObject* module);

}  // namespace thunder::interpreter
