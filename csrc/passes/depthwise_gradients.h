#pragma once

#include "ir/trace.h"

namespace thunder::passes {

/// Whether the gradient of a depthwise convolution's images of that type is better computed as a convolution.
using PrefersConvolution = bool (*)(const ir::TensorType& images);

/// Gradients of the images of depthwise convolutions (each channel has a filter of its own, and steps are of one
/// pixel): the convolution of the result's gradient with the mirrored filter, and with the padding that completes it.
/// Gradients of filters and biases stay what they are.
[[nodiscard]] ir::Trace convolve_depthwise_gradients(const ir::Trace& trace, PrefersConvolution prefers,
                                                     ir::FindOperator find_operator);

inline constexpr const char* kDepthwiseGradients = "depthwise_gradients";

}  // namespace thunder::passes
