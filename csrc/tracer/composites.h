#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace thunder::tracer {

/// Runs a composite's own code on trace tensors, whose calls are recorded.
void call_composite(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Whether code of PyTorch's own runs, which reads from a tensor where it begins in its memory (`fill_diagonal_`), and
/// means that place, wherever it is at another call. Others' code may mean the number.
[[nodiscard]] bool counts_from_tensors();

}  // namespace thunder::tracer
