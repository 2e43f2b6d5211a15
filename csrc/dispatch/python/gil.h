#pragma once

#include <Python.h>

#include <mutex>

namespace thunder::dispatch {

/// Lets other threads run Python while alive.
class GilRelease {
 public:
  explicit GilRelease(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds the GIL while alive, whether or not this thread held it before.
class GilHold {
 public:
  GilHold() : state_(PyGILState_Ensure()) {}
  ~GilHold() { PyGILState_Release(state_); }
  GilHold(const GilHold&) = delete;
  GilHold& operator=(const GilHold&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Locks a mutex. Who holds it may be waiting for the GIL, so other threads run Python meanwhile. Needs the GIL.
inline std::unique_lock<std::mutex> lock_without_gil(std::mutex& mutex) {
  const GilRelease others_run(true);
  return std::unique_lock(mutex);
}

}  // namespace thunder::dispatch
