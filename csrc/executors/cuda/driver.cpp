#include "executors/cuda/driver.h"

#include <dlfcn.h>

#include "base/error.h"
#include "executors/api/shared_library.h"

namespace thunder::executors::cuda {
namespace {

/// The first version that records overlapping launches in CUDA graphs.
constexpr int kLeastForOverlaps = 12030;

Driver load_driver() {
  void* const library = open_library({"libcuda.so.1"});
  if (library == nullptr) {
    throw UserError(ErrorKind::kRuntime,
                    "cuda: expected the CUDA driver (libcuda.so.1), which could not be opened; it comes with the "
                    "driver of the GPU, or run with other executors, as `thunder.jit(..., executors=[\"cpu\"])`");
  }
  Driver driver;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) {
      throw UserError(ErrorKind::kRuntime, std::string("cuda: expected a driver that has ") + name + "; update it");
    }
  };
  bind(driver.initialize, "cuInit");
  bind(driver.version, "cuDriverGetVersion");
  bind(driver.device, "cuDeviceGet");
  bind(driver.attribute, "cuDeviceGetAttribute");
  bind(driver.total_memory, "cuDeviceTotalMem_v2");
  bind(driver.current_context, "cuCtxGetCurrent");
  bind(driver.retain_context, "cuDevicePrimaryCtxRetain");
  bind(driver.set_context, "cuCtxSetCurrent");
  bind(driver.push_context, "cuCtxPushCurrent_v2");
  bind(driver.pop_context, "cuCtxPopCurrent_v2");
  bind(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  bind(driver.is_capturing, "cuStreamIsCapturing");
  bind(driver.load_module, "cuModuleLoadData");
  bind(driver.unload_module, "cuModuleUnload");
  bind(driver.function, "cuModuleGetFunction");
  bind(driver.function_attribute, "cuFuncGetAttribute");
  bind(driver.launch, "cuLaunchKernel");
  bind(driver.error_text, "cuGetErrorString");
  driver.check(driver.initialize(0), "starting the driver");
  int version = 0;
  driver.check(driver.version(&version), "asking for the driver's version");
  if (version < kLeastForOverlaps) return driver;
  bind(driver.launch_with, "cuLaunchKernelEx");
  bind(driver.create_stream, "cuStreamCreate");
  bind(driver.destroy_stream, "cuStreamDestroy_v2");
  bind(driver.begin_capture, "cuStreamBeginCapture_v2");
  bind(driver.end_capture, "cuStreamEndCapture");
  bind(driver.nodes, "cuGraphGetNodes");
  bind(driver.parameters, "cuGraphKernelNodeGetParams_v2");
  bind(driver.instantiate, "cuGraphInstantiateWithFlags");
  bind(driver.set_parameters, "cuGraphExecKernelNodeSetParams_v2");
  bind(driver.launch_graph, "cuGraphLaunch");
  bind(driver.destroy_executable, "cuGraphExecDestroy");
  bind(driver.destroy_graph, "cuGraphDestroy");
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static const Driver kDriver = load_driver();
  return kDriver;
}

void Driver::check(Result result, const std::string& doing) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_text(result, &text) != 0 || text == nullptr) text = "unknown error";
  throw UserError(ErrorKind::kRuntime,
                  "cuda: " + doing + ": " + text + " (driver error " + std::to_string(result) + ")");
}

}  // namespace thunder::executors::cuda
