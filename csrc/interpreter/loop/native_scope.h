#pragma once

namespace thunder::interpreter {

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

}  // namespace thunder::interpreter
