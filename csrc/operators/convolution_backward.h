#pragma once

#include <cstddef>

namespace thunder::operators {

/// `aten::convolution_backward`, whose results are the gradients of images, filters and bias, in the order of its mask.
struct ConvolutionBackward {
  static constexpr const char* kName = "aten::convolution_backward";
  enum Place : std::size_t {
    kGradient,
    kImages,
    kFilters,
    kBiasSizes,
    kStride,
    kPadding,
    kDilation,
    kTransposed,
    kOutputPadding,
    kGroups,
    kMask,
    kPlaces
  };
};

}  // namespace thunder::operators
