#include "executors/cuda_kernels/mapping.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

namespace thunder::executors::cuda {
namespace {

using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kMostThreadsOfRow = 512;
/// Vectors of a row that a thread holds in registers.
constexpr std::int64_t kMostRepeats = 8;
/// Threads of a multiprocessor that work on a kernel at the same time. Where each thread block has sums of its own,
/// fewer thread blocks mean fewer sums to add up; a row that is reduced besides leaves more registers to few threads.
constexpr std::int64_t kThreadsAtOnce = 4096;
constexpr std::int64_t kThreadsWithSums = 1024;
constexpr std::int64_t kThreadsWithSumsOfReducedRows = 512;
/// Rows that a thread goes over, so that it reads what they share once.
constexpr std::int64_t kMostRowsOfThread = 8;
/// Element operations up to which a thread works on four, or on two, rows at the same time.
constexpr std::ptrdiff_t kLittleWork = 12;
constexpr std::ptrdiff_t kSomeWork = 24;
constexpr std::int64_t kWidestLoad = 16;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
int power_of_two(std::int64_t least, int most) {
  return static_cast<int>(std::min<std::int64_t>(
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(least, 1)))), most));
}

bool has_kind(const SizedKernel& kernel, const std::function<bool(Kind)>& is) {
  return std::ranges::any_of(kernel.nodes, [&](const KernelNode& node) { return is(node.kind); });
}
bool has_column_sums(const SizedKernel& kernel) {
  return has_kind(kernel, [](Kind kind) { return kind == Kind::kColumnSum || kind == Kind::kColumnMoments; });
}
bool has_totals(const SizedKernel& kernel) {
  return has_kind(kernel, [](Kind kind) { return kind == Kind::kTotal; });
}

bool is_access_of_elements(const KernelNode& node) {
  return (node.kind == Kind::kLoad || node.kind == Kind::kStore || node.kind == Kind::kGather) &&
         node.extent == Extent::kElements;
}

/// The widest vector that the shortest element fits.
int widest_vector(const SizedKernel& kernel) {
  std::int64_t shortest = kWidestLoad;
  for (const KernelNode& node : kernel.nodes) {
    if (!is_access_of_elements(node)) continue;
    const std::int64_t size = ir::size_of(kernel.accesses[node.index].dtype);
    if (size > 1) shortest = std::min(shortest, size);
  }
  return static_cast<int>(std::clamp<std::int64_t>(kWidestLoad / shortest, 1, 8));
}

int choose_vector(const SizedKernel& kernel, const LaunchFacts& facts) {
  if (kernel.domain.interleaved) return 1;
  for (int vector = widest_vector(kernel); vector > 1; vector /= 2) {
    const bool is_divisible = kernel.domain.columns % vector == 0 && kernel.domain.run % vector == 0;
    const auto helps = [&](const KernelNode& node) {
      if (node.kind == Kind::kAssemble) return has_vectorized_parts(kernel.accesses[node.index], kernel, vector, facts);
      return is_access_of_elements(node) && (is_vectorized(kernel.accesses[node.index], kernel, vector, facts) ||
                                             has_vectorized_parts(kernel.accesses[node.index], kernel, vector, facts));
    };
    if (is_divisible && std::ranges::any_of(kernel.nodes, helps)) return vector;
  }
  return 1;
}

/// The threads of a row's tile, at most `most`: as many as leave the fewest idle, in columns and in rows.
int threads_of_tile(std::int64_t vectors, std::int64_t rows, int most) {
  if (vectors <= kWarp) return power_of_two(vectors, kWarp);
  const auto occupied = [&](int threads) {
    const std::int64_t rows_of_block = kThreads / threads;
    return divide_up(vectors, threads) * threads * divide_up(rows, rows_of_block) * rows_of_block;
  };
  int best = kWarp;
  for (int threads = kWarp; threads <= most; threads *= 2) {
    if (occupied(threads) <= occupied(best)) best = threads;
  }
  return best;
}

std::int64_t threads_at_once(const SizedKernel& kernel) {
  if (!has_column_sums(kernel) && !has_totals(kernel)) return kThreadsAtOnce;
  return reduces_rows(kernel) ? kThreadsWithSumsOfReducedRows : kThreadsWithSums;
}

int rows_at_once(const SizedKernel& kernel) {
  const auto work =
      std::ranges::count_if(kernel.nodes, [](const KernelNode& node) { return node.kind == Kind::kElement; });
  return work <= kLittleWork ? 4 : work <= kSomeWork ? 2 : 1;
}

}  // namespace

std::int64_t row_count(const SizedKernel& kernel) {
  return std::accumulate(kernel.domain.outer.begin(), kernel.domain.outer.end(), std::int64_t{1}, std::multiplies<>());
}

bool reduces_rows(const SizedKernel& kernel) {
  return has_kind(kernel,
                  [](Kind kind) { return kind == Kind::kReduce || kind == Kind::kMean || kind == Kind::kVariance; });
}

bool is_vectorized(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel, int vector,
                   const LaunchFacts& facts) {
  if (vector == 1 || !access.parts.empty()) return false;
  const std::int64_t bytes = std::min<std::int64_t>(kWidestLoad, vector * ir::size_of(access.dtype));
  if (facts.alignment % bytes != 0) return false;
  if (access.is_dense) return access.extent == Extent::kElements && !kernel.domain.interleaved;
  const auto divides = [&](std::int64_t number) { return number % vector == 0; };
  return access.inner_stride == 1 && divides(access.run) && divides(access.run_stride) &&
         divides(access.table_stride) && std::ranges::all_of(access.outer_strides, divides);
}

bool has_vectorized_parts(const fusion::BasicAccess<std::int64_t>& access, const SizedKernel& kernel, int vector,
                          const LaunchFacts& facts) {
  const std::int64_t bytes = std::min<std::int64_t>(kWidestLoad, vector * ir::size_of(access.dtype));
  const auto divides = [&](std::int64_t number) { return number % vector == 0; };
  if (vector == 1 || access.parts.empty() || facts.alignment % bytes != 0) return false;
  if (kernel.domain.interleaved || !divides(access.run) || !divides(kernel.domain.columns)) return false;
  const std::int64_t width = access.run != 0 ? access.run : kernel.domain.columns;
  return std::ranges::all_of(access.parts, [&](const fusion::BasicPart<std::int64_t>& part) {
    const bool begins_and_ends =
        divides(part.columns.begin) && (divides(part.columns.end) || part.columns.end >= width);
    return part.columns.stride == 1 && begins_and_ends && divides(part.runs.stride) &&
           std::ranges::all_of(part.outer, [&](const auto& interval) { return divides(interval.stride); });
  });
}

Mapping choose_mapping(const SizedKernel& kernel, const LaunchFacts& facts) {
  const std::int64_t rows = row_count(kernel);
  Mapping mapping;
  mapping.vector = choose_vector(kernel, facts);
  const std::int64_t vectors = divide_up(kernel.domain.columns, mapping.vector);
  const bool has_sums = has_column_sums(kernel);
  if (kernel.domain.interleaved) {
    mapping.are_neighbours = false;
    mapping.rows = kWarp;
    mapping.threads = power_of_two(divide_up(vectors, 4), kThreads / kWarp);
    mapping.repeats = 0;
  } else if (reduces_rows(kernel)) {
    // A thread takes four vectors of a row, unless there are too few rows for all multiprocessors.
    const std::int64_t shared = rows < facts.multiprocessors ? vectors : divide_up(vectors, 4);
    const std::int64_t wanted = vectors <= kWarp ? vectors : std::max<std::int64_t>(kWarp, shared);
    mapping.threads = power_of_two(wanted, kMostThreadsOfRow);
    mapping.rows = std::max(kThreads / 2 / mapping.threads, 1);
    const std::int64_t repeats = divide_up(vectors, mapping.threads);
    mapping.repeats = repeats <= kMostRepeats || has_sums ? static_cast<int>(repeats) : 0;
  } else {
    const bool is_flat = rows == 1 && !has_sums;
    const int most = has_sums ? kWarp : kThreads;
    mapping.threads = facts.is_batched && is_flat ? kThreads : threads_of_tile(vectors, rows, most);
    mapping.rows = kThreads / mapping.threads;
    mapping.tiles = divide_up(vectors, mapping.threads);
  }
  for (const auto& sum : kernel.sums) mapping.blocks = std::max(mapping.blocks, sum.blocks);
  const std::int64_t height = rows / mapping.blocks;
  const std::int64_t steps = divide_up(height, mapping.rows);
  const std::int64_t threads_of_grid = threads_at_once(kernel) * facts.multiprocessors;
  mapping.chunks = std::min(steps, divide_up(threads_of_grid, mapping.thread_count() * mapping.tiles * mapping.blocks));
  if (!has_sums && !has_totals(kernel)) {
    const bool goes_over_rows = !reduces_rows(kernel) && !kernel.domain.interleaved;
    mapping.chunks = std::max(mapping.chunks, divide_up(steps, goes_over_rows ? kMostRowsOfThread : 1));
  }
  if (!reduces_rows(kernel)) mapping.unrolled = rows_at_once(kernel);
  mapping.chunks = std::max<std::int64_t>(mapping.chunks, 1);
  mapping.chunk_rows = divide_up(divide_up(height, mapping.chunks), mapping.rows) * mapping.rows;
  return mapping;
}

}  // namespace thunder::executors::cuda
