#include "compile/gpu_steps.h"

#include "passes/aligned_matmuls.h"
#include "passes/contiguous_copies.h"
#include "passes/depthwise_gradients.h"
#include "passes/grouped_attention.h"
#include "passes/log_softmax_statistics.h"

namespace thunder::compile {
namespace {

/// How many outputs the caller gets; all of those of a backward.
std::size_t given_out(const Compilation& compilation, const TraceLine& line) {
  return &line == &compilation.forward ? saved_range(compilation).begin : line.history.last().outputs.size();
}

}  // namespace

void save_statistics(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!compilation.gradient || !fuses_on_gpu(compilation, trace)) return;
  runner.keep(
      passes::kLogSoftmaxStatistics,
      passes::save_log_softmax_statistics(trace, ir::DeviceType::kCuda, saved_range(compilation).begin, &find_operator),
      line.history);
}

void group_attention(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (compilation.gradient || !fuses_on_gpu(compilation, trace)) return;
  runner.keep(passes::kGroupedAttention, passes::group_attention(trace, ir::DeviceType::kCuda, &find_operator),
              line.history);
}

void avoid_copies(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation, trace)) return;
  runner.keep(
      passes::kContiguousCopies,
      passes::avoid_contiguous_copies(trace, ir::DeviceType::kCuda, given_out(compilation, line), &find_operator),
      line.history);
}

void convolve_gradients(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation, trace)) return;
  const auto prefers_convolution = target_on_gpu(compilation)->convolves_depthwise_gradients;
  if (prefers_convolution == nullptr) return;
  runner.keep(passes::kDepthwiseGradients,
              passes::convolve_depthwise_gradients(trace, prefers_convolution, &find_operator), line.history);
}

void align_matmuls(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation, trace)) return;
  runner.keep(passes::kAlignedMatmuls,
              passes::align_matmuls(trace, ir::DeviceType::kCuda, given_out(compilation, line), &find_operator),
              line.history);
}

}  // namespace thunder::compile
