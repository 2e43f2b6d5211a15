#pragma once

#include "executors/api/executor.h"

namespace thunder::executors::cpu {

/// Fuses memory-bound operations on the CPU and runs them tile by tile, with kernels that are compiled already.
extern const Executor kExecutor;

}  // namespace thunder::executors::cpu
