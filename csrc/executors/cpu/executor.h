#pragma once

#include "executors/api/executor.h"

namespace thunder::executors::cpu {

/// Fuses memory-bound operations on the CPU and runs them tile by tile, with kernels that are compiled already.
extern const Executor kExecutor;
/// `kExecutor` for users who promise that weights move their versions when they change: it keeps those of matmuls and
/// convolutions in oneDNN's layout.
extern const Executor kPrepackingExecutor;

}  // namespace thunder::executors::cpu
