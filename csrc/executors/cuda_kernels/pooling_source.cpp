#include "executors/cuda_kernels/pooling_source.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "executors/cuda_kernels/element_text.h"
#include "executors/cuda_kernels/lines.h"
#include "executors/cuda_kernels/pooling_text.h"
#include "executors/cuda_kernels/prelude.h"

namespace thunder::executors::cuda {
namespace {

constexpr int kThreads = 256;
/// Elements of a window in each direction: a thread has all of them in registers.
constexpr std::int64_t kWidestWindow = 4;
/// Elements of a patch in each direction, of which a thread computes the gradients.
constexpr std::int64_t kWidestStride = 3;

/// Neighbouring channels that a thread takes. Those of windows beyond 2 x 2 would take more registers than leave a
/// multiprocessor enough threads: 3 x 3 windows of eight bfloat16 each are read at half of an H100's bandwidth.
std::int64_t vector_of(ir::Dtype dtype, const PoolingShape::Pair& kernel) {
  constexpr std::int64_t kMostOfLargeWindow = 4;
  const std::int64_t widest = kWidestLoad / static_cast<std::int64_t>(ir::size_of(dtype));
  return kernel[0] * kernel[1] <= 4 ? widest : std::min(widest, kMostOfLargeWindow);
}
std::int64_t vectors_of(const PoolingShape& shape) { return shape.channels / vector_of(shape.dtype, shape.kernel); }

std::string constants_of(const PoolingShape& shape, const std::string& name) {
  Lines lines;
  const auto number = [&](const char* constant, std::int64_t value) {
    lines.add("constexpr int ", constant, " = ", value, ";");
  };
  lines.add("#define FUNCTION ", name);
  lines.add("typedef ", storage_text(shape.dtype), " Element;");
  number("kThreads", kThreads);
  number("kVector", vector_of(shape.dtype, shape.kernel));
  number("kKernelHeight", shape.kernel[0]);
  number("kKernelWidth", shape.kernel[1]);
  number("kStrideHeight", shape.stride[0]);
  number("kStrideWidth", shape.stride[1]);
  number("kPaddingHeight", shape.padding[0]);
  number("kPaddingWidth", shape.padding[1]);
  return lines.text();
}

/// Whether places within a channel, and offsets of vectors, fit in 32 bits; a last thread block ends behind the array.
bool has_short_offsets(const PoolingShape& shape, std::int64_t threads) {
  const std::int64_t vectors = vectors_of(shape);
  return threads + kThreads < INT32_MAX && shape.images * shape.size[0] * shape.size[1] * vectors < INT32_MAX;
}

/// Whether kernels read and write the arrays by vectors, and have places of an image in 32 bits.
bool is_for(const PoolingShape& shape, const LaunchFacts& facts) {
  return facts.alignment % kWidestLoad == 0 && shape.size[0] * shape.size[1] < INT32_MAX &&
         has_pooling_kernels(shape.dtype, shape.channels, shape.kernel, shape.stride);
}

/// `extents`: numbers that the body reads after that of all threads, and of vectors of a pixel.
KernelSource source_of(const PoolingShape& shape, std::int64_t threads, const std::string& constants,
                       std::string_view body, std::size_t arrays, const std::vector<std::int64_t>& extents,
                       const LaunchFacts& facts) {
  KernelSource source;
  source.array_count = arrays;
  source.numbers = {threads, vectors_of(shape)};
  source.numbers.insert(source.numbers.end(), extents.begin(), extents.end());
  source.launches = {{facts.name, divide_up(threads, kThreads), kThreads}};
  const char* index = has_short_offsets(shape, threads) ? "int" : "long long";
  source.text = join("typedef ", index, " Index;\n", kPrelude, "\nstruct Parameters {\n  void* arrays[", arrays,
                     "];\n  void* scratch;\n  Integer numbers[", source.numbers.size(), "];\n};\n\n", constants, body);
  return source;
}

}  // namespace

bool has_pooling_kernels(ir::Dtype dtype, std::int64_t channels, const PoolingShape::Pair& kernel,
                         const PoolingShape::Pair& stride) {
  const bool is_known = dtype == ir::Dtype::kFloat32 || ir::is_half(dtype);
  if (!is_known || channels < 1 || channels % vector_of(dtype, kernel) != 0) return false;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] < 1 || kernel[i] > kWidestWindow || stride[i] < 1 || stride[i] > kWidestStride) return false;
    if (kernel[i] > 2 * stride[i]) return false;
  }
  return true;
}

std::optional<KernelSource> emit_max_pooling(const PoolingShape& shape, bool gives_places, const LaunchFacts& facts) {
  const std::int64_t threads = shape.images * shape.out_size[0] * shape.out_size[1] * vectors_of(shape);
  if (!is_for(shape, facts) || threads == 0) return std::nullopt;
  const std::string constants =
      join(constants_of(shape, facts.name), "constexpr bool kGivesPlaces = ", gives_places ? "true" : "false", ";\n");
  return source_of(shape, threads, constants, kMaxPoolingText, gives_places ? 3 : 2,
                   {shape.size[0], shape.size[1], shape.out_size[0], shape.out_size[1]}, facts);
}

std::optional<KernelSource> emit_max_pooling_gradient(const PoolingShape& shape, const LaunchFacts& facts) {
  // Patches begin where windows do, in the padding.
  const std::int64_t rows = divide_up(shape.size[0] + shape.padding[0], shape.stride[0]);
  const std::int64_t columns = divide_up(shape.size[1] + shape.padding[1], shape.stride[1]);
  const std::int64_t threads = shape.images * rows * columns * vectors_of(shape);
  if (!is_for(shape, facts) || threads == 0 || shape.size[0] * shape.size[1] == 0) return std::nullopt;
  return source_of(shape, threads, constants_of(shape, facts.name), kMaxPoolingGradientText, 4,
                   {shape.size[0], shape.size[1], shape.out_size[0], shape.out_size[1], rows, columns}, facts);
}

}  // namespace thunder::executors::cuda
