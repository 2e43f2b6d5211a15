#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "interpreter/python/python_ref.h"

// CPython runs the handlers of signals wherever it runs Python, also where code in C asks an object for its hash: there
// an exception of a handler may get lost, or be taken for another failure. While a program is traced, handlers are
// called by functions of ours, which note what they raise, and which wait where nothing may be interrupted.
namespace thunder::interpreter {

/// Signals that arrive until this is destroyed wait. One that arrives a second time does not, so that code of the
/// user's which does not return can be stopped, unless `always`.
class SignalHold {
 public:
  explicit SignalHold(bool always = false);
  ~SignalHold();
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;

 private:
  bool always_;
};

/// Signals do not wait until this is destroyed.
class SignalWindow {
 public:
  SignalWindow();
  ~SignalWindow();
  SignalWindow(const SignalWindow&) = delete;
  SignalWindow& operator=(const SignalWindow&) = delete;

 private:
  int holds_;
};

/// Leaves what is going on while a handler runs: until what it gives is destroyed.
using LeaveForHandler = std::function<std::shared_ptr<void>()>;

/// Handlers are called by functions of ours until this is destroyed, and signals wait outside of a `SignalWindow`. Does
/// nothing on threads that run no handlers. A Python exception is set behind the constructor where a handler has raised
/// it meanwhile.
class SignalScope {
 public:
  explicit SignalScope(LeaveForHandler leave);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  struct Replaced {
    int signal;
    py::Ref handler;
    py::Ref ours;
  };

  bool replace(int signal);
  static bool restore(const Replaced& replaced);

  SignalHold hold_;
  LeaveForHandler leave_;
  const LeaveForHandler* leave_before_ = nullptr;
  std::vector<Replaced> replaced_;
};

/// The user's handler where CPython knows a function of ours in its place; any other object as it is.
[[nodiscard]] py::Ref handler_of_user(py::Borrowed handler);

/// Runs the handlers that wait. False with the exception that one of them raised.
[[nodiscard]] bool run_waiting_handlers();

/// Counts how often other code may have run on the objects of the program that this thread executes: another thread, or
/// the handler of a signal.
[[nodiscard]] unsigned long interruption_count();

/// Counts the exceptions that handlers have raised on this thread.
[[nodiscard]] std::uint64_t handler_exception_count();
/// The last of them.
[[nodiscard]] py::Ref last_handler_exception();

}  // namespace thunder::interpreter
