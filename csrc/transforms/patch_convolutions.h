#pragma once

#include <optional>

#include "ir/trace.h"

namespace thunder::transforms {

/// The computation with convolutions of patches (filters as large as their steps, such as the first layer of a vision
/// transformer) as linear layers of these patches, 16-bit floats on `device`. cuDNN pads the three channels of an
/// image to eight, which takes longer than the matmul does, and copies images to channels last and results back.
/// Results come in channels-last memory; what the program gives out has the strides that were recorded.
///
/// nullopt where there are no such convolutions, and for programs that cannot be recorded again.
[[nodiscard]] std::optional<ir::Trace> patch_convolutions(const ir::Trace& trace, ir::DeviceType device);

inline constexpr const char* kPatchConvolutions = "patch_convolutions";

}  // namespace thunder::transforms
