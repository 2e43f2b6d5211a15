#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Lets an operation write its result into the memory of an argument that dies with it (`add_` for `add`,
/// `gelu_backward.grad_input` for `gelu_backward`): one allocation less, and memory that the cache holds already. Only
/// into memory that the trace made itself and that nothing else shares, of the result's dtype and strides. Never into
/// inputs (so never into values saved for a backward), constants or outputs. Small tensors are left alone: for them
/// the allocator is faster than the pages are worth.
[[nodiscard]] ir::Trace introduce_in_place(const ir::Trace& trace, FindOperator find_operator);

/// Smaller results stay as they are.
inline constexpr std::int64_t kInPlaceBytes = 4096;

inline constexpr Pass kInPlace{"in_place", &introduce_in_place};

}  // namespace thunder::passes
