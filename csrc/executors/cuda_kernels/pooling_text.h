#pragma once

#include <string_view>

namespace thunder::executors::cuda {

/// The body of a kernel for max pooling, and of one for its derivative. In front of them stand constants: see
/// pooling_source.cpp.
extern const std::string_view kMaxPoolingText;
extern const std::string_view kMaxPoolingGradientText;

}  // namespace thunder::executors::cuda
