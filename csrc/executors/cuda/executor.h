#pragma once

#include "executors/api/executor.h"

namespace thunder::executors::cuda {

class Engine;

/// The target and the engine of an executor's kernels.
struct Backend {
  const fusion::Target* target = nullptr;
  Engine* engine = nullptr;
};

/// The executor of NVIDIA's GPUs. Nothing of CUDA is opened before it compiles a kernel.
[[nodiscard]] const Executor& executor();
/// An executor that makes kernels in CUDA C++ of fusions. `backend` lives as long as it does.
[[nodiscard]] Executor make_executor(const char* name, const Backend& backend);

}  // namespace thunder::executors::cuda
