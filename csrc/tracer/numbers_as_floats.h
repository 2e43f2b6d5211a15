#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thunder::tracer {

/// Numbers of a trace among the arguments of a call whose schema has floats there (`_fused_adamw_`), and which has no
/// derivative: PyTorch's bindings get other floats, and an operator is recorded that takes the numbers as tensors.
/// While alive, for the first call of the operator on this thread.
class NumbersAsFloats {
 public:
  /// `op`: its name without an overload; numbers by the names of their parameters, with the tensors that stand for
  /// them.
  NumbersAsFloats(std::string op, std::vector<std::pair<std::string, at::Tensor>> numbers);
  ~NumbersAsFloats();
  NumbersAsFloats(const NumbersAsFloats&) = delete;
  NumbersAsFloats& operator=(const NumbersAsFloats&) = delete;

  /// Whether the call was recorded.
  [[nodiscard]] bool are_taken() const { return are_taken_; }
  /// The operator that is called in the place of `op`, whose arguments `stack` has from then on.
  [[nodiscard]] static std::optional<c10::OperatorHandle> put_into(const c10::OperatorHandle& op,
                                                                   torch::jit::Stack& stack);

 private:
  std::string op_;
  std::vector<std::pair<std::string, at::Tensor>> numbers_;
  bool are_taken_ = false;
  NumbersAsFloats* before_;
};

}  // namespace thunder::tracer
