#pragma once

#include "interpreter/python/cpython_compat.h"

#include <cstddef>

#include "interpreter/loop/context.h"

namespace thunder::interpreter {

/// One call of a builtin: `self` of a bound method stands first.
struct IntrinsicCall {
  Context& context;
  PyObject* const* arguments;
  std::size_t count;
  PyObject* callable;
  bool is_bound;  ///< `callable` supplies the first argument itself
};

/// A builtin that amounts to an opcode: does the call and reports the precise event. A new reference, or null.
using Intrinsic = PyObject* (*)(const IntrinsicCall& call);

struct IntrinsicRow {
  Intrinsic function;
  std::size_t least;  ///< positional arguments, self included
  std::size_t most;
};

/// To be called before the others, while the program has not replaced a builtin.
void prepare_intrinsics();
/// The row of `callable`, a builtin function, method, slot wrapper or type; null if it has none. `*self` becomes what a
/// bound method is bound to (borrowed), or null.
const IntrinsicRow* find_intrinsic(PyObject* callable, PyObject** self);

}  // namespace thunder::interpreter
