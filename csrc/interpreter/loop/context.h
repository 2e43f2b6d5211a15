#pragma once

#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/observer.h"

namespace thunder::interpreter {

/// One interpretation on one thread.
struct Context {
  Observer* observer = nullptr;
  /// The function whose call was reported to the observer and whose frame is about to begin; null otherwise.
  PyObject* announced = nullptr;
  /// Not null in a context without an observer that stands for a native function: the interpretation which called it,
  /// to which functions of the program that it calls belong.
  Context* outer = nullptr;
};

/// This thread's interpretation; null while it runs natively.
extern thread_local Context* current_context;

/// Has CPython execute a native function until destroyed.
class NativeFunctionScope {
 public:
  explicit NativeFunctionScope(Treatment treatment);
  ~NativeFunctionScope();
  NativeFunctionScope(const NativeFunctionScope&) = delete;
  NativeFunctionScope& operator=(const NativeFunctionScope&) = delete;

 private:
  Context* saved_;
  Context native_;
};

/// Goes on with the interpretation that called a native function until destroyed.
class OuterScope {
 public:
  OuterScope() : native_(current_context) { current_context = native_->outer; }
  ~OuterScope() { current_context = native_; }
  OuterScope(const OuterScope&) = delete;
  OuterScope& operator=(const OuterScope&) = delete;

 private:
  Context* native_;
};

}  // namespace thunder::interpreter
