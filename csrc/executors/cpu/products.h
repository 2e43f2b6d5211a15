#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "ir/trace.h"

namespace thunder::executors::cpu {

// Kernels of `NativeOperation`, named after their operators: products of float32 matrices by oneDNN. MKL, which PyTorch
// asks, leaves the AVX-512 of processors alone that are not Intel's, and is half as fast there.

/// Of float32, where oneDNN is the faster library, and large enough that its longer way there does not count.
[[nodiscard]] bool is_large_product(const ir::BoundSymbol& symbol, const ir::Trace& trace);

/// (left, right): the right one is a matrix.
bool run_mm(std::vector<c10::IValue>& stack);
/// (bias, left, right, beta, alpha)
bool run_addmm(std::vector<c10::IValue>& stack);
/// (input, weight, bias)
bool run_linear(std::vector<c10::IValue>& stack);

}  // namespace thunder::executors::cpu
