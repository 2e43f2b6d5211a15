#pragma once

#include <array>
#include <cstddef>

#include "ir/type.h"

namespace thunder::executors::cuda {

/// Whether images of these sizes lie channels last, without gaps, if their strides are these.
[[nodiscard]] inline bool lies_channels_last(const ir::Dims& sizes, const ir::Dims& strides) {
  if (sizes.size() != 4 || strides.size() != 4) return false;
  const ir::Dim row = sizes[3] * sizes[1];
  const std::array expected{sizes[2] * row, ir::Dim(1), row, sizes[1]};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (sizes[i] != ir::Dim(1) && strides[i] != expected[i]) return false;
  }
  return true;
}

}  // namespace thunder::executors::cuda
