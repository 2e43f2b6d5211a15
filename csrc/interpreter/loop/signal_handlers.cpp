#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/signal_handlers.h"

#include <signal.h>

#include <bit>
#include <utility>

#include "interpreter/loop/native_scope.h"

namespace thunder::interpreter {
namespace {

constexpr int kMostSignals = 64;  // as many as there are bits of `waiting`

struct State {
  int scopes = 0;
  int holds = 0;
  int holds_always = 0;
  std::uint64_t waiting = 0;
  unsigned long handler_calls = 0;
  std::uint64_t exception_count = 0;
  PyObject* exception = nullptr;           ///< owned; it is dropped at the end of the outermost scope
  const LeaveForHandler* leave = nullptr;  ///< that of the innermost scope
};

thread_local State state;

bool runs_handlers() { return _Py_ThreadCanHandleSignals(PyInterpreterState_Get()) != 0; }

/// Has CPython call the handlers of what waits as if the signals arrived now.
void send_waiting() {
  for (std::uint64_t left = std::exchange(state.waiting, 0); left != 0; left &= left - 1) {
    PyErr_SetInterruptEx(std::countr_zero(left) + 1);
  }
}

bool has_to_wait(long signal) {
  if (state.holds == 0 || signal < 1 || signal > kMostSignals) return false;
  const std::uint64_t bit = std::uint64_t{1} << (signal - 1);
  const bool waits = (state.waiting & bit) == 0 || state.holds_always > 0;
  state.waiting = waits ? state.waiting | bit : state.waiting & ~bit;
  return waits;
}

void note_exception() {
  PyObject* exception = take_exception();
  ++state.exception_count;
  Py_XSETREF(state.exception, Py_NewRef(exception));
  restore_exception(exception);
}

/// Stands for the handler of a signal. Handlers are no part of the program that is traced.
PyObject* call_handler(PyObject* handler, PyObject* const* arguments, Py_ssize_t count) {
  const long signal = count > 0 ? PyLong_AsLong(arguments[0]) : 0;
  if (signal == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (has_to_wait(signal)) Py_RETURN_NONE;
  ++state.handler_calls;
  const NativeScope native;
  const std::shared_ptr<void> outside = state.leave == nullptr ? nullptr : (*state.leave)();
  PyObject* result = PyObject_Vectorcall(handler, arguments, static_cast<std::size_t>(count), nullptr);
  if (result == nullptr && state.scopes > 0) note_exception();
  return result;
}

PyMethodDef handler_method = {"thunder_signal_handler",
                              reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_handler)), METH_FASTCALL,
                              "Calls the handler of a signal."};

PyObject* signal_function(const char* name) {
  const py::Ref module = py::Ref::steal(py::import_module("_signal"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

py::Ref handler_of(int signal) {
  static PyObject* const get = signal_function("getsignal");
  return py::Ref::steal(get == nullptr ? nullptr : PyObject_CallFunction(get, "i", signal));
}

/// Sets the handler that CPython calls, and nothing of what the system knows of the signal.
bool set_handler(int signal, py::Borrowed handler) {
  static PyObject* const set = signal_function("signal");
  struct sigaction known;
  if (set == nullptr || sigaction(signal, nullptr, &known) != 0) return false;
  const py::Ref before = py::Ref::steal(PyObject_CallFunction(set, "iO", signal, handler));
  sigaction(signal, &known, nullptr);
  return static_cast<bool>(before);
}

}  // namespace

SignalHold::SignalHold(bool always) : always_(always) {
  ++state.holds;
  state.holds_always += always ? 1 : 0;
}

SignalHold::~SignalHold() {
  state.holds_always -= always_ ? 1 : 0;
  if (--state.holds == 0) send_waiting();
}

SignalWindow::SignalWindow() : holds_(std::exchange(state.holds, 0)) { send_waiting(); }

SignalWindow::~SignalWindow() { state.holds = holds_; }

SignalScope::SignalScope(LeaveForHandler leave) : leave_(std::move(leave)) {
  if (!runs_handlers()) return;
  leave_before_ = std::exchange(state.leave, &leave_);
  if (state.scopes++ > 0) return;
  for (int signal = 1; signal <= kMostSignals; ++signal) {
    if (!replace(signal)) return;
  }
}

SignalScope::~SignalScope() {
  if (!runs_handlers()) return;
  state.leave = leave_before_;
  if (--state.scopes > 0) return;
  const py::SavedError pending;
  const SignalHold always(true);
  for (const Replaced& replaced : replaced_) {
    if (!restore(replaced)) PyErr_Clear();
  }
  Py_CLEAR(state.exception);
}

bool SignalScope::replace(int signal) {
  py::Ref handler = handler_of(signal);
  if (!handler) PyErr_Clear();  // there is no such signal
  if (!handler || PyCallable_Check(handler.get()) == 0) return true;
  py::Ref ours = py::Ref::steal(PyCFunction_New(&handler_method, handler.get()));
  if (!ours || !set_handler(signal, ours.get())) return PyErr_Occurred() == nullptr;
  replaced_.push_back({signal, std::move(handler), std::move(ours)});
  return true;
}

/// The program, or a handler, may have set another one meanwhile.
bool SignalScope::restore(const Replaced& replaced) {
  const py::Ref now = handler_of(replaced.signal);
  return now && (now.get() != replaced.ours.get() || set_handler(replaced.signal, replaced.handler.get()));
}

py::Ref handler_of_user(py::Borrowed handler) {
  const bool is_ours = PyCFunction_Check(handler) &&
                       reinterpret_cast<PyCFunctionObject*>(static_cast<PyObject*>(handler))->m_ml == &handler_method;
  return py::Ref::share(is_ours ? PyCFunction_GET_SELF(handler) : static_cast<PyObject*>(handler));
}

bool run_waiting_handlers() {
  const SignalWindow window;
  return PyErr_CheckSignals() == 0;
}

unsigned long interruption_count() { return gil_switches() + state.handler_calls; }

std::uint64_t handler_exception_count() { return state.exception_count; }

py::Ref last_handler_exception() { return py::Ref::share(state.exception); }

}  // namespace thunder::interpreter
