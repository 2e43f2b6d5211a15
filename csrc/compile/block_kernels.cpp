#include "compile/block_kernels.h"

#include <string>

#include "compile/executor_list.h"
#include "executors/cuda_kernels/kernel_source.h"
#include "executors/cuda_kernels/prelude.h"
#include "executors/cuda_kernels/target.h"
#include "fusion/lowering.h"
#include "fusion/region.h"
#include "ir/trace_sizes.h"

namespace thunder::compile {
namespace {

using executors::KernelText;

/// The target of CUDA's kernels, for tensors of any device.
fusion::Target target_of_any_device() {
  fusion::Target target = executors::cuda::kTarget;
  target.accepts = [](const ir::TensorType& type) { return fusion::has_compute_type(type.dtype); };
  return target;
}

KernelText kernel_on_gpu(const ir::BoundSymbol& kernel, const ir::Trace& trace) {
  const ir::Trace region = ir::at_sizes(fusion::region_of(kernel, trace), ir::traced_symbols(trace));
  const fusion::Target target = target_of_any_device();
  const auto graph = fusion::Lowering::lower(region.symbols[0], region, fusion::traced_strides(region), target);
  if (!graph) return {};
  const auto source = executors::cuda::emit_source(graph->at(), executors::cuda::LaunchFacts{});
  if (!source) return {};
  const std::size_t shared = executors::cuda::prelude_end(source->text);
  KernelText made;
  made.beginning = source->text.substr(0, shared);
  made.text = source->text.substr(shared);
  return made;
}

}  // namespace

std::vector<KernelText> block_kernels(const ir::BoundSymbol& block, const ir::Trace& trace) {
  const auto* name = block.op->style == ir::CallStyle::kBlock ? block.arguments.at(0).get<std::string>() : nullptr;
  const executors::Executor* executor = name == nullptr ? nullptr : find_executor(*name);
  if (executor == nullptr || executor->kernels == nullptr) return {};
  return executor->kernels(*executor, block, trace);
}

std::vector<KernelText> block_kernels_on_gpu(const ir::BoundSymbol& block, const ir::Trace& trace) {
  std::vector<KernelText> kernels;
  for (const ir::BoundSymbol& each : fusion::members_or_itself(block)) {
    if (fusion::is_kernel(each)) kernels.push_back(kernel_on_gpu(each, trace));
  }
  return kernels;
}

}  // namespace thunder::compile
