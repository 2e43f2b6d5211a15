#include "executors/cuda_kernels/mapping_choice.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <vector>

#include "executors/cuda_kernels/registers.h"
#include "executors/cuda_kernels/row_passes.h"

namespace thunder::executors::cuda {
namespace {

using fusion::Extent;
using fusion::KernelNode;
using fusion::SizedKernel;
using Kind = KernelNode::Kind;

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kMostThreadsOfRow = 512;
constexpr int kMostThreadsOfOnlyRow = 1024;
/// Vectors of a row that a thread holds in registers.
constexpr std::int64_t kMostRepeats = 8;
constexpr std::int64_t kMostShiftedRepeats = 4;
/// Threads of a multiprocessor that work on a kernel.
constexpr std::int64_t kThreadsAtOnce = 4096;
/// Where each thread block has sums of its own, fewer thread blocks mean fewer sums to add up: no more than can work at
/// the same time, as a few that come afterwards would take as long as all before.
constexpr std::int64_t kThreadsWithSums = 1024;
constexpr std::int64_t kThreadsWithTotals = 2048;
constexpr std::int64_t kRegisters = 65536;
constexpr std::int64_t kRegistersTogether = 8;
/// Bytes of rows that are read several times, of all that are worked on at the same time: they stay in the cache.
constexpr std::int64_t kMostBytesInCache = std::int64_t{32} << 20U;
constexpr std::int64_t kMostRowsInCache = 4;
/// Bytes that a thread reads at the same time, where it adds up what it reads.
constexpr std::int64_t kBytesAtOnce = 64;
/// Rows that a thread goes over, so that it reads what they share once.
constexpr std::int64_t kMostRowsOfThread = 8;
/// Element operations up to which a thread works on four, or on two, rows at the same time.
constexpr std::ptrdiff_t kLittleWork = 12;
constexpr std::ptrdiff_t kSomeWork = 24;
/// Columns from which on rows that begin between vectors are read by vectors.
constexpr std::int64_t kLeastShifted = 1024;

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

bool stores_elements(const SizedKernel& kernel) {
  return std::ranges::any_of(kernel.nodes, [](const KernelNode& node) {
    return node.kind == Kind::kStore && node.extent == Extent::kElements;
  });
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

/// Whether vectors that end in the middle of rows are read and written all the same: long rows of arrays that all have
/// them alike, without sums over rows: the columns of a thread differ from row to row.
bool may_shift(const SizedKernel& kernel, int vector, const LaunchFacts& facts) {
  const bool has_long_rows = reduces_rows(kernel) && kernel.domain.columns >= kLeastShifted;
  if (!has_long_rows || has_column_sums(kernel) || kernel.domain.interleaved || kernel.domain.run != 0) return false;
  if (!kernel.overwritten.empty() || facts.alignment < kWidestLoad || vector < 2) return false;
  return std::ranges::all_of(kernel.nodes, [&](const KernelNode& node) {
    if (node.kind == Kind::kRandom || node.kind == Kind::kAssemble) return false;
    if (node.kind == Kind::kStore && node.operand_count > 1) return false;  // into a row that an index chooses
    return !is_access_of_elements(node) || node.kind == Kind::kGather ||
           has_rows_in_order(kernel.accesses[node.index], kernel) ||
           std::ranges::all_of(kernel.accesses[node.index].outer_strides, [](auto stride) { return stride == 0; });
  });
}

/// Whether rows that begin with vectors in all arrays, but end between them, are read and written by vectors all the
/// same: rows with gaps behind them.
bool may_be_ragged(const SizedKernel& kernel, int vector, const LaunchFacts& facts) {
  const auto& domain = kernel.domain;
  if (domain.interleaved || domain.run != 0 || domain.columns < kLeastShifted || vector < 2) return false;
  if (!kernel.overwritten.empty() || facts.alignment < kWidestLoad) return false;
  return std::ranges::all_of(kernel.nodes, [&](const KernelNode& node) {
    if (node.kind == Kind::kRandom || node.kind == Kind::kAssemble) return false;
    return !is_access_of_elements(node) || is_vectorized(kernel.accesses[node.index], kernel, vector, facts);
  });
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

/// Thread blocks of a multiprocessor that have the registers to work at the same time.
int blocks_at_once(const SizedKernel& kernel, const Mapping& mapping, const LaunchFacts& facts) {
  const std::int64_t registers = divide_up(registers_of_thread(kernel, mapping, facts), kRegistersTogether);
  const std::int64_t most = has_column_sums(kernel) ? kThreadsWithSums : kThreadsWithTotals;
  const std::int64_t threads = std::min(most, kRegisters / (registers * kRegistersTogether));
  return static_cast<int>(std::max<std::int64_t>(threads / mapping.thread_count(), 1));
}

/// Bytes that a thread reads for a row.
std::int64_t bytes_of_row(const SizedKernel& kernel, const Mapping& mapping) {
  std::int64_t bytes = 0;
  for (const KernelNode& node : kernel.nodes) {
    if (node.kind != Kind::kLoad || node.extent != Extent::kElements) continue;
    const auto& access = kernel.accesses[node.index];
    const bool moves = std::ranges::any_of(access.outer_strides, [](std::int64_t stride) { return stride != 0; });
    if (moves) bytes += mapping.vector * ir::size_of(access.dtype);
  }
  return bytes;
}

/// Bytes of a row that several passes read.
std::int64_t bytes_read_again(const SizedKernel& kernel, const Mapping& mapping) {
  const RowPasses passes(kernel, mapping.joins_sums());
  std::vector<int> passes_of(kernel.nodes.size(), 0);
  for (std::size_t pass = 0; pass < passes.count(); ++pass) {
    for (const std::size_t node : passes.elements_of(pass)) ++passes_of[node];
  }
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < kernel.nodes.size(); ++i) {
    if (kernel.nodes[i].kind != Kind::kLoad || passes_of[i] < 2) continue;
    bytes += kernel.domain.columns * ir::size_of(kernel.accesses[kernel.nodes[i].index].dtype);
  }
  return bytes;
}

/// Rows too long for registers, of which a multiprocessor works on so many at the same time; nullopt: they may be many.
std::optional<int> rows_in_cache(const SizedKernel& kernel, const Mapping& mapping, const LaunchFacts& facts) {
  const std::int64_t bytes = bytes_read_again(kernel, mapping);
  if (bytes == 0) return std::nullopt;
  const std::int64_t rows = kMostBytesInCache / (bytes * facts.multiprocessors);
  return static_cast<int>(std::clamp<std::int64_t>(rows, 1, kMostRowsInCache));
}

int rows_at_once(const SizedKernel& kernel, const Mapping& mapping) {
  if (has_column_sums(kernel)) {
    const std::int64_t bytes = std::max<std::int64_t>(bytes_of_row(kernel, mapping), 1);
    return static_cast<int>(std::clamp<std::int64_t>(divide_up(kBytesAtOnce, bytes), 1, 4));
  }
  const auto work =
      std::ranges::count_if(kernel.nodes, [](const KernelNode& node) { return node.kind == Kind::kElement; });
  return work <= kLittleWork ? 4 : work <= kSomeWork ? 2 : 1;
}

}  // namespace

Mapping choose_mapping(const SizedKernel& kernel, const LaunchFacts& facts) {
  const std::int64_t rows = row_count(kernel);
  Mapping mapping;
  mapping.vector = choose_vector(kernel, facts);
  const int widest = widest_vector(kernel);
  mapping.is_shifted = mapping.vector < widest && may_shift(kernel, widest, facts);
  mapping.is_ragged = mapping.vector < widest && !mapping.is_shifted && may_be_ragged(kernel, widest, facts);
  if (mapping.has_partial_vectors()) mapping.vector = widest;
  const std::int64_t vectors = divide_up(kernel.domain.columns, mapping.vector) + (mapping.is_shifted ? 1 : 0);
  const bool has_sums = has_column_sums(kernel);
  std::optional<int> in_cache;
  if (kernel.domain.interleaved) {
    mapping.are_neighbours = false;
    mapping.rows = kWarp;
    mapping.threads = power_of_two(divide_up(vectors, 4), kThreads / kWarp);
    mapping.repeats = 0;
  } else if (reduces_rows(kernel)) {
    // A thread takes four vectors of a row (two where the row becomes one element), unless there are too few rows for
    // all multiprocessors.
    const bool stores = stores_elements(kernel) || has_sums;
    const std::int64_t shared = rows < facts.multiprocessors ? vectors : divide_up(vectors, stores ? 4 : 2);
    const std::int64_t wanted = vectors <= kWarp ? vectors : std::max<std::int64_t>(kWarp, shared);
    mapping.threads = power_of_two(wanted, kMostThreadsOfRow);
    mapping.rows = std::max((stores ? kThreads / 2 : kThreads) / mapping.threads, 1);
    const std::int64_t repeats = divide_up(vectors, mapping.threads);
    const std::int64_t most = mapping.is_shifted ? kMostShiftedRepeats : kMostRepeats;
    mapping.repeats = repeats <= most || has_sums ? static_cast<int>(repeats) : 0;
    const std::int64_t covered = std::int64_t{mapping.threads} * mapping.vector * mapping.repeats;
    mapping.is_full = !has_totals(kernel) && !mapping.has_partial_vectors() && kernel.domain.columns == covered;
    if (mapping.repeats == 0 && rows > facts.multiprocessors) in_cache = rows_in_cache(kernel, mapping, facts);
    if (in_cache == 1) mapping.threads = kMostThreadsOfOnlyRow;
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
  const std::int64_t parts = mapping.tiles * mapping.blocks;
  if (!reduces_rows(kernel)) mapping.unrolled = rows_at_once(kernel, mapping);
  if (has_sums || has_totals(kernel) || in_cache) {
    mapping.blocks_at_once = blocks_at_once(kernel, mapping, facts);
    if (in_cache) mapping.blocks_at_once = std::min(mapping.blocks_at_once, *in_cache);
    mapping.chunks = std::min(steps, std::int64_t{mapping.blocks_at_once} * facts.multiprocessors / parts);
  } else {
    const std::int64_t threads_of_grid = kThreadsAtOnce * facts.multiprocessors;
    mapping.chunks = std::min(steps, divide_up(threads_of_grid, mapping.thread_count() * parts));
    const bool goes_over_rows = !reduces_rows(kernel) && !kernel.domain.interleaved;
    mapping.chunks = std::max(mapping.chunks, divide_up(steps, goes_over_rows ? kMostRowsOfThread : 1));
  }
  mapping.chunks = std::max<std::int64_t>(mapping.chunks, 1);
  mapping.chunk_rows = divide_up(divide_up(height, mapping.chunks), mapping.rows) * mapping.rows;
  return mapping;
}

}  // namespace thunder::executors::cuda
