#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/context.h"

namespace thunder::interpreter {

/// Executes `frame` by our handlers, in this thread's context; the contract is `_PyEval_EvalFrameDefault`'s.
PyObject* evaluate_frame(PyThreadState* tstate, Frame* frame, int throwing);

/// The address of the instruction that this thread's innermost frame executes; null: there is none.
const void* current_instruction();

/// The generator, coroutine or asynchronous generator whose body `frame` is (borrowed), or null.
PyObject* generator_of(Frame* frame);

}  // namespace thunder::interpreter
