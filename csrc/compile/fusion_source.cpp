#include "compile/fusion_source.h"

#include "executors/cuda_kernels/kernel_source.h"
#include "executors/cuda_kernels/prelude.h"
#include "executors/cuda_kernels/target.h"
#include "fusion/lowering.h"
#include "fusion/region.h"
#include "ir/trace_sizes.h"

namespace thunder::compile {
namespace {

/// The target of CUDA's kernels, for tensors of any device.
fusion::Target target_of_any_device() {
  fusion::Target target = executors::cuda::kTarget;
  target.accepts = [](const ir::TensorType& type) { return fusion::has_compute_type(type.dtype); };
  return target;
}

std::optional<std::string> kernel_source(const ir::BoundSymbol& kernel, const ir::Trace& trace) {
  const ir::Trace region = ir::at_sizes(fusion::region_of(kernel, trace), ir::traced_symbols(trace));
  const fusion::Target target = target_of_any_device();
  const auto graph = fusion::Lowering::lower(region.symbols[0], region, fusion::traced_strides(region), target);
  if (!graph) return std::nullopt;
  const auto source = executors::cuda::emit_source(graph->at(), executors::cuda::LaunchFacts{});
  if (!source) return std::nullopt;
  const std::size_t prelude = source->text.find(executors::cuda::kPrelude);
  return source->text.substr(prelude + executors::cuda::kPrelude.size());
}

}  // namespace

std::optional<std::string> cuda_source(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  if (fusion::is_kernel(symbol)) return kernel_source(symbol, trace);
  if (!fusion::is_batch(symbol)) return std::nullopt;
  std::string text;
  for (const ir::BoundSymbol& member : symbol.nested) {
    if (const auto source = kernel_source(member, trace)) text += *source;
  }
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

}  // namespace thunder::compile
