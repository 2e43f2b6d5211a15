#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/Device.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace thunder::dispatch {

/// State of PyTorch, in the thread or the process, that a trace depends on without reading it from Python.
struct ThreadState {
  struct Autocast {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    friend bool operator==(const Autocast&, const Autocast&) = default;
  };

  bool grad_mode = true;
  bool inference_mode = false;
  bool autocast_cache = true;
  bool deterministic = false;
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  std::uint32_t tensor_class = 0;  ///< version of `torch.Tensor`: another one once its methods are replaced
  Autocast cpu;
  Autocast cuda;
  /// The devices that active `with torch.device(…)` blocks and `torch.set_default_device` set, the innermost last.
  c10::SmallVector<c10::Device, 1> default_devices;
  friend bool operator==(const ThreadState&, const ThreadState&) = default;

  /// To be called only where `has_unknown_layers` is false.
  [[nodiscard]] static ThreadState now();

  /// A part of the state, as the expression that gives it.
  struct Entry {
    std::string expression;
    std::string value;
  };
  /// All parts, in the same order for each state.
  [[nodiscard]] std::vector<Entry> entries() const;
};

/// Whether something stands around this thread's calls that sees or changes operations, other than what `ThreadState`
/// tells: a function mode of the user, a dispatch mode, a functorch transform, `torch.jit.trace`, a kernel in Python.
/// Such a call runs as eager code.
[[nodiscard]] bool has_unknown_layers();

/// Whether `torch.fx` traces Python on some thread. What a program is called with then may be proxies: it is told to
/// them by running as eager code.
[[nodiscard]] bool is_fx_tracing();

/// Whether a function mode is on that is told of what this thread calls: any but that of `with torch.device(…)`.
[[nodiscard]] bool has_function_mode();

/// Whether such a mode, or the object's own `__torch_function__`, is told of operations on the object.
[[nodiscard]] bool is_told_of_operations(PyObject* object);

/// While it lives, what this thread does is told to no function mode.
class WithoutFunctionModes {
 public:
  WithoutFunctionModes() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutFunctionModes() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutFunctionModes(const WithoutFunctionModes&) = delete;
  WithoutFunctionModes& operator=(const WithoutFunctionModes&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

/// Whether something around this thread's calls takes part in what autograd does for each operation: hooks on saved
/// tensors, a level of forward mode, anomaly detection. Such a call runs as eager code.
[[nodiscard]] bool is_autograd_observed();

/// Sets what the state tells, but for function modes.
void set_thread_state(const ThreadState& state);

/// Puts the state of the thread back as it was when this was made, function modes included.
class RestoreThreadState {
 public:
  RestoreThreadState();
  ~RestoreThreadState();
  RestoreThreadState(const RestoreThreadState&) = delete;
  RestoreThreadState& operator=(const RestoreThreadState&) = delete;
  [[nodiscard]] const ThreadState& state() const { return state_; }

 private:
  ThreadState state_;
  std::vector<std::shared_ptr<c10::SafePyObject>> modes_;
};

}  // namespace thunder::dispatch
