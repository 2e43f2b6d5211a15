#pragma once

#include "fusion/target.h"

namespace thunder::executors::cuda {

/// The abilities of kernels in CUDA C++.
extern const fusion::Target kTarget;

}  // namespace thunder::executors::cuda
