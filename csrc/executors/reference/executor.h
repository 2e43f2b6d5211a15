#pragma once

#include "executors/api/executor.h"

namespace thunder::executors::reference {

/// Fuses whatever kernels can express, and runs kernels step by step in double (`fusion/interpreter.h`): slow, and what
/// other executors' kernels are compared with. Not among the default executors.
extern const Executor kExecutor;

}  // namespace thunder::executors::reference
