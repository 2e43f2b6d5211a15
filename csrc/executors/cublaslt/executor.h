#pragma once

#include "executors/api/executor.h"
#include "executors/cublaslt/epilogues.h"
#include "executors/cublaslt/matmuls.h"

namespace thunder::executors::cublaslt {

/// Matmuls with epilogues on NVIDIA's GPUs. Where there is no cuBLASLt it claims nothing.
[[nodiscard]] const Executor& executor();
/// An executor like it for another device; `backend` lives as long as the process.
struct Backend {
  Matmuls* matmuls = nullptr;
  EpilogueRule rule;
};
[[nodiscard]] Executor make_executor(const char* name, const Backend& backend);

}  // namespace thunder::executors::cublaslt
