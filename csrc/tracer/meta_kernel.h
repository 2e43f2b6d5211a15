#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace thunder::tracer {

/// The meta kernel in C++ of an operator for which PyTorch registers one in Python over it; null: there is none.
/// Those in Python are a hundred times slower, and the first one imports torch._dynamo (seconds).
[[nodiscard]] const c10::KernelFunction* hidden_meta_kernel(const c10::OperatorHandle& op);

}  // namespace thunder::tracer
