#pragma once

#include "interpreter/python/cpython_compat.h"

namespace thunder::interpreter {

/// Runs `frame` as CPython would without us.
PyObject* evaluate_natively(PyThreadState* tstate, Frame* frame, int throwing);

/// The evaluation function that stood in CPython before ours; null for CPython's own. Guarded by the GIL.
extern _PyFrameEvalFunction previous_evaluation;

/// The lowest address that the C stack of this thread may reach before we raise RecursionError.
const char* stack_limit();

}  // namespace thunder::interpreter
