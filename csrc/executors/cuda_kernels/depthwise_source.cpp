#include "executors/cuda_kernels/depthwise_source.h"

#include <algorithm>
#include <string>

#include "executors/cuda_kernels/depthwise_text.h"
#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/lines.h"
#include "executors/cuda_kernels/prelude.h"

namespace thunder::executors::cuda {
namespace {

/// Filters in each direction: a thread has the elements that a strip needs of a row in registers.
constexpr std::int64_t kWidestFilter = 7;
/// Thread blocks for each multiprocessor, beyond which each takes more lines.
constexpr std::int64_t kBlocksOfMultiprocessor = 8;
constexpr std::int64_t kMostSteps = 8;

/// How a kernel's work is shared out.
struct Plan {
  std::int64_t pairs = 0;  ///< pairs of channels of a thread block; 0: there is no kernel
  std::int64_t lines = 0;  ///< lines that a thread block takes at a time
  std::int64_t blocks_at_once = 0;
  std::int64_t strip = 0;
  std::int64_t strips = 0;
  std::int64_t steps = 1;
  std::int64_t grid = 0;
};

/// Threads for neighbouring pairs of channels, with which rows of whole pairs are read.
std::int64_t pairs_of(std::int64_t channels) {
  for (const std::int64_t pairs : {64, 48, 32, 16}) {
    if (channels % (2 * pairs) == 0) return pairs;
  }
  return 0;
}

Plan plan_of(const DepthwiseShape& shape, const LaunchFacts& facts) {
  Plan plan;
  plan.pairs = pairs_of(shape.channels);
  plan.lines = plan.pairs == 64 ? 4 : 8;
  plan.blocks_at_once = plan.pairs == 48 ? 2 : 3;
  // Whole strips waste nothing: images of 224 pixels have lines of 56, 28, 14 and 7 behind the first layers.
  plan.strip = shape.out_size[1] % 7 == 0 ? 7 : 8;
  plan.strips = divide_up(shape.out_size[1], plan.strip);
  const std::int64_t columns = plan.strips * (shape.channels / (2 * plan.pairs));
  const std::int64_t parts = divide_up(shape.images * shape.out_size[0], plan.lines);
  plan.steps =
      std::clamp<std::int64_t>(columns * parts / (kBlocksOfMultiprocessor * facts.multiprocessors), 1, kMostSteps);
  plan.grid = columns * divide_up(parts, plan.steps);
  return plan;
}

std::string constants_of(const DepthwiseShape& shape, const Plan& plan, const std::string& name) {
  Lines lines;
  const auto number = [&](const char* constant, std::int64_t value) {
    lines.add("constexpr int ", constant, " = ", value, ";");
  };
  lines.add("#define FUNCTION ", name);
  lines.add("typedef ", storage_text(shape.dtype), " Element;");
  number("kPairs", plan.pairs);
  number("kLines", plan.lines);
  number("kBlocksAtOnce", plan.blocks_at_once);
  number("kStrip", plan.strip);
  number("kKernelHeight", shape.kernel[0]);
  number("kKernelWidth", shape.kernel[1]);
  number("kPaddingHeight", shape.padding[0]);
  number("kPaddingWidth", shape.padding[1]);
  return lines.text();
}

/// Whether offsets of pairs of channels fit in 32 bits, also those of elements beside an image.
bool has_short_offsets(const DepthwiseShape& shape) {
  const auto pairs = [&](const DepthwiseShape::Pair& size) {
    return static_cast<double>(shape.images + 1) * static_cast<double>(size[0] + kWidestFilter) *
           static_cast<double>(size[1] + kWidestFilter) * static_cast<double>(shape.channels);
  };
  return std::max(pairs(shape.size), pairs(shape.out_size)) < static_cast<double>(INT32_MAX);
}

}  // namespace

bool has_depthwise_kernel(ir::Dtype dtype, std::int64_t channels, const DepthwiseShape::Pair& kernel) {
  const bool is_known = dtype == ir::Dtype::kBfloat16 || dtype == ir::Dtype::kFloat16;
  const auto fits = [](std::int64_t size) { return size >= 1 && size <= kWidestFilter; };
  return is_known && channels > 0 && pairs_of(channels) != 0 && std::ranges::all_of(kernel, fits);
}

std::optional<KernelSource> emit_depthwise(const DepthwiseShape& shape, const LaunchFacts& facts) {
  constexpr std::int64_t kBytesOfPair = 4;
  if (!has_depthwise_kernel(shape.dtype, shape.channels, shape.kernel)) return std::nullopt;
  const bool is_empty = shape.images * shape.out_size[0] * shape.out_size[1] * shape.size[0] * shape.size[1] == 0;
  if (is_empty || facts.alignment % kBytesOfPair != 0) return std::nullopt;
  const Plan plan = plan_of(shape, facts);
  KernelSource source;
  source.array_count = 3;
  source.numbers = {shape.images * shape.out_size[0],
                    shape.channels / 2,
                    plan.strips,
                    plan.steps,
                    shape.size[0],
                    shape.size[1],
                    shape.out_size[0],
                    shape.out_size[1]};
  source.launches = {{facts.name, plan.grid, static_cast<int>(plan.pairs * plan.lines)}};
  const char* index = has_short_offsets(shape) ? "int" : "long long";
  source.text = join("typedef ", index, " Index;\n", kPrelude, "\nstruct Parameters {\n  void* arrays[3];\n  void* ",
                     "scratch;\n  Integer numbers[", source.numbers.size(), "];\n};\n\n",
                     constants_of(shape, plan, facts.name), kDepthwiseText);
  return source;
}

}  // namespace thunder::executors::cuda
