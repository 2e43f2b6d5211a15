#pragma once

#include "interpreter/cpython_compat.h"
#include "interpreter/observer.h"

namespace thunder::interpreter {

/// One interpretation on one thread.
struct Context {
  Observer* observer = nullptr;
  /// The function whose call was reported to the observer and whose frame is about to begin; null otherwise.
  PyObject* announced = nullptr;
};

/// This thread's interpretation; null while it runs natively.
extern thread_local Context* current_context;

/// Sets this thread's interpretation until destroyed, and keeps our evaluation function installed meanwhile.
class ContextScope {
 public:
  explicit ContextScope(Context* context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* saved_;
};

/// Counted: CPython enters our evaluation function while at least one holder remains.
void retain_evaluation_hook();
void release_evaluation_hook();

/// Has the resumptions of a generator, coroutine or asynchronous generator interpreted until it dies, wherever they
/// come from; 0 or -1 with an exception. Other objects are left alone.
int adopt_generator(PyObject* generator);

/// The lowest address that the C stack of this thread may reach before we raise RecursionError.
const char* stack_limit();

/// Runs `frame` as CPython would without us.
PyObject* evaluate_natively(PyThreadState* tstate, Frame* frame, int throwing);

}  // namespace thunder::interpreter
