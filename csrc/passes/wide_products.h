#pragma once

#include "ir/trace.h"

namespace thunder::passes {

/// Products of matrices of 16-bit floats on a device of which the caller gets a cast to float32, and nobody reads
/// anything else, as gradients of weights under autocast are: the matmul itself gives float32 (`mm` with `out_dtype`),
/// in which it adds up anyway. That saves rounding, and a pass over memory.
[[nodiscard]] ir::Trace widen_products(const ir::Trace& trace, ir::DeviceType device, ir::FindOperator find_operator);

inline constexpr const char* kWideProducts = "wide_products";

}  // namespace thunder::passes
