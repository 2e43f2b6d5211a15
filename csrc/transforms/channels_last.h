#pragma once

#include <optional>

#include "ir/trace.h"

namespace thunder::transforms {

/// The computation with its images in channels-last memory, where that is faster: oneDNN's convolutions take such images
/// as they are, and copy all others to a layout of their own and back. Inputs are copied where a convolution meets them;
/// results have the strides that were recorded. nullopt where there is nothing to gain: fewer than two convolutions for
/// each copy, images that are small or channels-last anyway, or a program that cannot be recorded again (a gradient of
/// its own, numbers that Python reads).
[[nodiscard]] std::optional<ir::Trace> channels_last(const ir::Trace& trace);

inline constexpr const char* kChannelsLast = "channels_last";

}  // namespace thunder::transforms
