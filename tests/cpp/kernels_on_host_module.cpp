#include "compile/executor_list.h"
#include "kernels_on_host.h"

/// Registers the executor for kernels on the processor: the fuzzer calls it where it has loaded the extension module.
extern "C" [[gnu::visibility("default")]] void thunder_register_kernels_on_host() {
  thunder::check::leave_out_nvrtc();
  thunder::compile::register_executor(thunder::check::kKernelsOnHost);
}
