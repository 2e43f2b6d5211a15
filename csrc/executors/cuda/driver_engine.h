#pragma once

#include <cstdint>
#include <optional>

#include "executors/cuda/engine.h"
#include "ir/dtype.h"

namespace thunder::executors::cuda {

/// The engine of NVIDIA's GPUs: NVRTC compiles, the driver launches. It lives as long as the process.
[[nodiscard]] Engine& driver_engine();
/// The bytes of memory that a device has; nullopt: the machine has no driver, or no such device.
[[nodiscard]] std::optional<std::int64_t> memory_of(ir::Device device);

}  // namespace thunder::executors::cuda
