#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <utility>

namespace thunder::tracer {

/// Arguments that PyTorch's bindings do not take, for the operator that they call. While alive, for the first call of
/// the operator on this thread. `Self` derives from it.
template <typename Self>
class ForNextCall {
 public:
  ForNextCall(const ForNextCall&) = delete;
  ForNextCall& operator=(const ForNextCall&) = delete;
  /// Whether the call was recorded.
  [[nodiscard]] bool are_taken() const { return are_taken_; }

 protected:
  /// `op`: its name without an overload.
  explicit ForNextCall(std::string op)
      : op_(std::move(op)), before_(std::exchange(current(), static_cast<Self*>(this))) {}
  ~ForNextCall() { current() = before_; }

  /// Those that this call is to take; null: there are none.
  [[nodiscard]] static Self* of(const c10::OperatorHandle& op) {
    Self* const given = current();
    const bool are_for_it = given != nullptr && !given->are_taken_ && op.operator_name().name == given->op_;
    return are_for_it ? given : nullptr;
  }
  void take() { are_taken_ = true; }

 private:
  static Self*& current() {
    thread_local Self* innermost = nullptr;
    return innermost;
  }

  std::string op_;
  bool are_taken_ = false;
  Self* before_;
};

}  // namespace thunder::tracer
