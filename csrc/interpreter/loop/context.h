#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// One interpretation on one thread.
struct Context {
  Observer* observer = nullptr;
  /// The function whose call was reported to the observer and whose frame is about to begin; null otherwise.
  PyObject* announced = nullptr;
};

/// This thread's interpretation; null while it runs natively.
extern thread_local Context* current_context;

}  // namespace thunder::interpreter
