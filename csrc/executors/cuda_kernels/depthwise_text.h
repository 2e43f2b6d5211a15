#pragma once

#include <string_view>

namespace thunder::executors::cuda {

/// The body of a kernel for depthwise convolutions. In front of it stand constants: see depthwise_source.cpp.
extern const std::string_view kDepthwiseText;

}  // namespace thunder::executors::cuda
