#pragma once

#include <string_view>

#include "ir/trace.h"

namespace thunder::executors::cublaslt {

/// Blocks of a matmul and what the library computes of its result before it stores it. `gelu(…, approximate="tanh")`
/// alone: that is the library's. Both kinds may have a reshape in between.
inline constexpr std::string_view kGelu = "cublaslt_matmul_gelu";  ///< gives the GELU, then, if wanted, what it is of
inline constexpr std::string_view kGeluGradient = "cublaslt_matmul_gelu_gradient";  ///< gives it, then sums of columns

/// The matmuls that are taken.
struct EpilogueRule {
  ir::DeviceType device = ir::DeviceType::kCuda;
  /// Those of fewer multiplications are PyTorch's: their results are in the cache, where a kernel of ours finds them.
  double least_multiplications = 1 << 28;
};

/// Makes such blocks in a trace, of 16-bit floats; false: there are none.
bool take_epilogues(ir::Trace& trace, const EpilogueRule& rule, const char* executor);

}  // namespace thunder::executors::cublaslt
