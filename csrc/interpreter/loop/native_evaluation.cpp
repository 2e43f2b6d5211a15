#include "interpreter/loop/native_evaluation.h"

#include <pthread.h>

#include <cstddef>
#include <utility>

namespace thunder::interpreter {

_PyFrameEvalFunction previous_evaluation = nullptr;

namespace {
thread_local Frame* forwarded_frame = nullptr;
}  // namespace

PyObject* evaluate_natively(PyThreadState* tstate, Frame* frame, int throwing) {
  // Whoever installed itself after us may call us back for the frame that we handed over.
  if (previous_evaluation == nullptr || forwarded_frame == frame)
    return _PyEval_EvalFrameDefault(tstate, frame, throwing);
  Frame* outer = std::exchange(forwarded_frame, frame);
  PyObject* result = previous_evaluation(tstate, frame, throwing);
  forwarded_frame = outer;
  return result;
}

const char* stack_limit() {
  static constexpr std::size_t kReserve = 192 * 1024;
  thread_local const char* limit = [] {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &lowest, &size);
      pthread_attr_destroy(&attributes);
    }
    return static_cast<const char*>(lowest) + (size > 2 * kReserve ? kReserve : size / 2);
  }();
  return limit;
}

}  // namespace thunder::interpreter
