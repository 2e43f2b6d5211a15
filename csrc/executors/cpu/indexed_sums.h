#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace thunder::executors::cpu {

// Kernels of `NativeOperation`, named after their operators: where they accumulate, rows that are added to those that
// an index names, as gradients of gathered rows are. In the order of the index, whatever the number of threads;
// PyTorch's adds one by one where it must be deterministic, else in any order.

[[nodiscard]] bool run_index_put(std::vector<c10::IValue>& stack);
[[nodiscard]] bool run_index_put_in_place(std::vector<c10::IValue>& stack);

}  // namespace thunder::executors::cpu
