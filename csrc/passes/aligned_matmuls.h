#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::passes {

/// Large matmuls of 16-bit floats on a GPU whose matrices have rows of an odd number of elements (a vocabulary of
/// 50,257 words): cuBLAS reads and writes such rows element by element, at a third of its speed or less. Operands are
/// copied to rows that begin at multiples of 16 bytes; a result becomes the front of a matrix with longer rows, unless
/// it is one of the first `caller_outputs` outputs, which keep their strides.
[[nodiscard]] ir::Trace align_matmuls(const ir::Trace& trace, std::size_t caller_outputs,
                                      ir::FindOperator find_operator);

inline constexpr const char* kAlignedMatmuls = "aligned_matmuls";

}  // namespace thunder::passes
