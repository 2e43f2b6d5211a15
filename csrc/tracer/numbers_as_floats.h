#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tracer/next_call.h"

namespace thunder::tracer {

/// Numbers of a trace among the arguments of a call whose schema has floats there (`_fused_adamw_`), and which has no
/// derivative: PyTorch's bindings get other floats, and an operator is recorded that takes the numbers as tensors.
class NumbersAsFloats : public ForNextCall<NumbersAsFloats> {
 public:
  /// Numbers by the names of their parameters, with the tensors that stand for them.
  NumbersAsFloats(std::string op, std::vector<std::pair<std::string, at::Tensor>> numbers)
      : ForNextCall(std::move(op)), numbers_(std::move(numbers)) {}

  /// The operator that is called in the place of `op`, whose arguments `stack` has from then on.
  [[nodiscard]] static std::optional<c10::OperatorHandle> put_into(const c10::OperatorHandle& op,
                                                                   torch::jit::Stack& stack);

 private:
  std::vector<std::pair<std::string, at::Tensor>> numbers_;
};

}  // namespace thunder::tracer
