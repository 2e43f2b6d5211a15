#include "compile/compilation.h"

#include <algorithm>

#include "passes/symbol_facts.h"

namespace thunder::compile {

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
  const auto is_there = [&](ir::ValueId id) { return passes::is_on_gpu(trace.tensor_type(id)); };
  return fuses_on_gpu(compilation) && std::ranges::any_of(trace.inputs, is_there);
}

}  // namespace thunder::compile
