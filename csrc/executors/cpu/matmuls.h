#pragma once

#include <ATen/core/Tensor.h>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

// A `SingleOperation`: a matmul of float32 matrices, by oneDNN. MKL, which PyTorch asks, leaves the AVX-512 of
// processors alone that are not Intel's, and is half as fast there.
[[nodiscard]] bool takes_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

// A `SingleOperation`: a matmul of float32 or bfloat16 matrices with a weight that is an input of the trace. While it
// stays the same, it is kept in oneDNN's layout, where the user promises that it moves its version when it changes.
[[nodiscard]] bool takes_prepacked_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_prepacked_matmul(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

/// An `OperationWithActivation`: a matmul of float32 or bfloat16.
[[nodiscard]] bool matmul_takes_activation(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_matmul_with_activation(const ir::BoundSymbol& matmul, const ir::BoundSymbol& activation,
                                  const ir::Trace& trace, bool prepacks, runtime::ProgramBuilder& builder);

/// Whether matmuls of the dtype shall be oneDNN's.
[[nodiscard]] bool matmuls_are_onednns(ir::Dtype dtype);
/// `left @ right.t()`, by oneDNN, of matrices without gaps.
[[nodiscard]] at::Tensor multiply_by_transposed(const at::Tensor& left, const at::Tensor& right);

}  // namespace thunder::executors::cpu
