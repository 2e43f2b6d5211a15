#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <span>

namespace thunder::tracer {

/// Whether autocast has a say: its kernel casts arguments and calls the operator again, which is then recorded.
[[nodiscard]] std::optional<c10::DispatchKey> autocast_key(const c10::OperatorHandle& op, c10::DispatchKeySet keys);

/// Whether autocast is on, for any device.
[[nodiscard]] bool is_autocast_on();

/// While alive, autocast is off, as it is around a backward that the caller runs. What a backward casts in contexts of
/// its own is not remembered for the forward.
class WithoutAutocast {
 public:
  WithoutAutocast();
  ~WithoutAutocast();
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
  int contexts_ = 0;  ///< those that the forward is in
};

/// Whether autocast would cast something in what a composite without a kernel for autocast (`einsum`) calls. Runs the
/// composite for its metadata; nothing is recorded.
[[nodiscard]] bool parts_meet_autocast(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

/// While `parts_meet_autocast` runs on this thread: looks at one of the calls. False otherwise.
[[nodiscard]] bool look_for_autocast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

/// Refuses an operator that is one to a trace and calls others below autograd, where autocast casts.
void require_no_casts_inside(const c10::OperatorHandle& op);

}  // namespace thunder::tracer
