#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::passes {

/// Large matmuls of 16-bit floats on a device whose matrices have rows of an odd number of elements (a vocabulary of
/// 50,257 words): cuBLAS reads and writes such rows element by element, at a third of its speed or less. Operands get
/// zeros behind their rows, up to a multiple of 16 bytes. A result becomes the front of a matrix with longer rows, or a
/// copy of it where the strides may be seen. The first `caller_outputs` outputs, which the caller gets, are copies.
[[nodiscard]] ir::Trace align_matmuls(const ir::Trace& trace, ir::DeviceType device, std::size_t caller_outputs,
                                      ir::FindOperator find_operator);

inline constexpr const char* kAlignedMatmuls = "aligned_matmuls";

}  // namespace thunder::passes
