#pragma once

#include "executors/api/executor.h"

namespace thunder::executors::aten {

/// Runs every operator of the dispatcher as PyTorch does.
extern const Executor kExecutor;

}  // namespace thunder::executors::aten
