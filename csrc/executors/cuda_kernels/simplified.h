#pragma once

#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The kernel without what no result needs, in which equal loads, and what is computed alike from equal values, are
/// one: every reader of an input brings a load of its own.
[[nodiscard]] fusion::SizedKernel simplified(const fusion::SizedKernel& kernel);

}  // namespace thunder::executors::cuda
