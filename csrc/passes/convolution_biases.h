#pragma once

#include "ir/trace.h"

namespace thunder::passes {

/// Biases of convolutions on a device, where a library adds them in a kernel of its own: a convolution without a bias
/// and a sum, which fuses with what follows.
[[nodiscard]] ir::Trace split_convolution_biases(const ir::Trace& trace, ir::DeviceType device,
                                                 ir::FindOperator find_operator);

inline constexpr const char* kConvolutionBiases = "convolution_biases";

}  // namespace thunder::passes
