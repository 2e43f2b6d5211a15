#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace thunder::executors::cpu {

// Kernels of `NativeOperation`, named after their operators.

[[nodiscard]] bool run_bernoulli_in_place(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_bernoulli(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_dropout(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_native_dropout(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_bernoulli_with_state(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_bernoulli_from_state(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_native_dropout_with_state(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_native_dropout_mask_from_state(std::vector<c10::IValue>& stack);

}  // namespace thunder::executors::cpu
