#pragma once

#include <optional>

#include "ir/trace.h"

namespace thunder::transforms {

/// The computation with its images in channels-last memory: convolutions of oneDNN and cuDNN take such images as they
/// are, and copy all others to a layout of their own and back; and a channel is a column there, so that the executor
/// fuses what goes over channels. Images are copied where a convolution meets them in another layout; results have the
/// strides that were recorded. A batch norm becomes arithmetic (in evaluation), or leaves the running statistics to
/// operations of their own (in training, where `rules_norm.cpp` has a rule for the rest).
///
/// nullopt where there is nothing to gain: fewer than two convolutions for each copy, small images, images that are
/// small beside the filters that are trained; and for programs that cannot be recorded again (a gradient of their own,
/// numbers that Python reads).
///
/// On a GPU: 16-bit convolutions, where an executor fuses what stands between them (`fuses_on_gpu`).
[[nodiscard]] std::optional<ir::Trace> channels_last(const ir::Trace& trace, bool fuses_on_gpu);

inline constexpr const char* kChannelsLast = "channels_last";

}  // namespace thunder::transforms
