#pragma once

#include "interpreter/python/cpython_compat.h"

namespace thunder::interpreter {

/// Makes the functions below ready; 0 or -1. Not at first use: that could give the GIL away inside an initialization.
int prepare_native_operations();

/// `lambda: None`.
extern PyObject* empty_function;
/// The `vectorcall` of every plain function object.
extern vectorcallfunc plain_function_vectorcall;

/// The exception that `except*` raises at its end, from the original exception and the list of what the clauses left;
/// None for nothing.
PyObject* prepare_reraise_star(PyObject* original, PyObject* exceptions);

#if PY_VERSION_HEX >= 0x030c0000
/// CALL_INTRINSIC_1 in a frame with these code flags and locals; a new reference, or null.
PyObject* call_intrinsic(PyThreadState* tstate, int which, PyObject* value, int code_flags, PyObject* locals);
/// CALL_INTRINSIC_2.
PyObject* call_intrinsic_2(PyThreadState* tstate, int which, PyObject* first, PyObject* second);
#endif

}  // namespace thunder::interpreter
