#include "compile/compilation.h"

#include <algorithm>

namespace thunder::compile {
namespace {

bool is_on_gpu(const ir::Trace& trace) {
  return std::ranges::any_of(trace.inputs, [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && type->device.type == ir::DeviceType::kCuda;
  });
}

}  // namespace

SavedRange saved_range(const Compilation& compilation) {
  const std::size_t outputs = compilation.forward.history.output_count();
  return {compilation.gradient ? compilation.gradient->output_count : outputs, outputs};
}

const fusion::Target* target_on_gpu(const Compilation& compilation) {
  ir::TensorType on_gpu;
  on_gpu.device.type = ir::DeviceType::kCuda;
  const auto fuses = [&](const executors::Executor* executor) {
    return executor->fuse != nullptr && executor->target != nullptr && executor->target->accepts(on_gpu);
  };
  const auto found = std::ranges::find_if(compilation.executors, fuses);
  return !compilation.fuses || found == compilation.executors.end() ? nullptr : (*found)->target;
}

bool fuses_on_gpu(const Compilation& compilation) { return target_on_gpu(compilation) != nullptr; }

bool fuses_on_gpu(const Compilation& compilation, const ir::Trace& trace) {
  return fuses_on_gpu(compilation) && is_on_gpu(trace);
}

}  // namespace thunder::compile
