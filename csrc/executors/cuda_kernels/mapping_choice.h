#pragma once

#include "executors/cuda_kernels/mapping.h"

namespace thunder::executors::cuda {

/// The mapping for a kernel: what keeps most threads busy, and reads most neighbours at once.
[[nodiscard]] Mapping choose_mapping(const fusion::SizedKernel& kernel, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
