#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace thunder::dispatch {

/// What PyTorch keeps for a thread or the process, and a trace depends on without reading it from Python.
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
  Autocast cpu;
  Autocast cuda;
  std::int64_t function_modes = 0;
  friend bool operator==(const ThreadState&, const ThreadState&) = default;

  [[nodiscard]] static ThreadState now();

  /// A part of the state, as the expression that gives it.
  struct Entry {
    std::string expression;
    std::string value;
  };
  /// All parts, in the same order for each state.
  [[nodiscard]] std::vector<Entry> entries() const;
};

/// Whether something around this thread's calls takes part in what autograd does for each operation: hooks on saved
/// tensors, a level of forward mode, anomaly detection. Such a call runs as eager code.
[[nodiscard]] bool is_autograd_observed();

/// Puts grad mode and autocast back as they were when it was made.
class RestoreThreadState {
 public:
  RestoreThreadState() : state_(ThreadState::now()) {}
  ~RestoreThreadState();
  RestoreThreadState(const RestoreThreadState&) = delete;
  RestoreThreadState& operator=(const RestoreThreadState&) = delete;
  [[nodiscard]] const ThreadState& state() const { return state_; }

 private:
  ThreadState state_;
};

}  // namespace thunder::dispatch
