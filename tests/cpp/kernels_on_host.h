#pragma once

#include "executors/api/executor.h"

namespace thunder::check {

/// An executor that makes CUDA kernels of fusions, compiles them with the C++ compiler (`$CXX`, or c++) and runs them
/// on the processor: see cuda_on_host.h. Where NVRTC is there, it compiles them for several GPUs besides.
extern const executors::Executor kKernelsOnHost;
/// How many kernels it has run.
[[nodiscard]] int launches_on_host();
/// From now on kernels are compiled for the processor only, which takes a third of the time.
void leave_out_nvrtc();

}  // namespace thunder::check
