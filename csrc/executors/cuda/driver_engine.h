#pragma once

#include "executors/cuda/engine.h"

namespace thunder::executors::cuda {

/// The engine of NVIDIA's GPUs: NVRTC compiles, the driver launches. It lives as long as the process.
[[nodiscard]] Engine& driver_engine();

}  // namespace thunder::executors::cuda
