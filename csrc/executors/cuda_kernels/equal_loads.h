#pragma once

#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The kernel in which equal loads are one: every reader of an input brings a load of its own.
[[nodiscard]] fusion::SizedKernel with_loads_once(const fusion::SizedKernel& kernel);

}  // namespace thunder::executors::cuda
