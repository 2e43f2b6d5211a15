#pragma once

#include <ATen/ThreadLocalState.h>

#include <memory>

#include "dispatch/call/thread_state.h"

namespace thunder::dispatch {

/// The state of this thread where a call is about to be traced, for code that interrupts the trace and is no part of
/// the program, such as the handler of a signal.
class StateOfCall {
 public:
  /// Until the result is destroyed, nothing is recorded, and all modes and settings are those of the call: neither what
  /// the trace nor what the program has changed.
  [[nodiscard]] std::shared_ptr<void> leave_trace() const;

 private:
  at::ThreadLocalState thread_;
  ThreadState settings_ = ThreadState::now();
};

}  // namespace thunder::dispatch
