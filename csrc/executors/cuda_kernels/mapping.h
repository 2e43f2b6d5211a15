#pragma once

#include <cstdint>
#include <string>

#include "base/rounding.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The facts about a launch that decide, with a kernel's sizes, which source fits it.
struct LaunchFacts {
  std::int64_t alignment = 16;  ///< in bytes, of every array's first element
  int multiprocessors = 132;
  std::string name = "fused";  ///< the function's, as profilers show it
  bool is_batched = false;     ///< launches run several members, of which most shall have one text
};

/// How a kernel's rows and columns are shared out among threads. A thread block takes `rows` rows at a time, with
/// `threads` threads for each, which take `vector` neighbouring columns each, `repeats` times.
struct Mapping {
  int threads = 256;
  int rows = 1;
  int vector = 1;
  /// Rows begin between vectors: a row's first vector, and its last one, lie partly in its neighbours.
  bool is_shifted = false;
  bool is_full = false;  ///< all threads of a row have all of their vectors
  /// Rows begin with vectors, but end between them.
  bool is_ragged = false;
  int repeats = 1;             ///< 0: until the row ends, where it is too long for registers
  bool are_neighbours = true;  ///< the threads of a row; else those of a column, as rows are interleaved in memory
  std::int64_t tiles = 1;      ///< parts of a row that thread blocks take by themselves, where nothing reduces rows
  std::int64_t blocks = 1;     ///< blocks of rows with column sums of their own
  std::int64_t chunks = 1;     ///< parts of each block, one for each thread block
  std::int64_t chunk_rows = 1;
  int unrolled = 1;        ///< rows that a thread works on at the same time
  int blocks_at_once = 0;  ///< thread blocks of a multiprocessor that registers must do for; 0: any

  /// Whether a row's last vector, or its first one, may lie partly outside of it.
  [[nodiscard]] bool has_partial_vectors() const { return is_shifted || is_ragged; }
  /// Whether the sum of exponentials of a row is computed with its maximum: rows are read again, not kept.
  [[nodiscard]] bool joins_sums() const { return repeats == 0 && are_neighbours; }
  [[nodiscard]] int thread_count() const { return threads * rows; }
  [[nodiscard]] std::int64_t grid() const { return tiles * blocks * chunks; }
};

[[nodiscard]] std::int64_t row_count(const fusion::SizedKernel& kernel);
[[nodiscard]] bool reduces_rows(const fusion::SizedKernel& kernel);

/// The bytes that a thread reads at once at most.
inline constexpr std::int64_t kWidestLoad = 16;

/// Whether rows of an array follow one another without gaps, as the domain's do.
[[nodiscard]] bool has_rows_in_order(const fusion::BasicAccess<std::int64_t>& access,
                                     const fusion::SizedKernel& kernel);

/// Whether an access reads or writes `vector` neighbouring columns as one: these are neighbours in memory, and the
/// first is aligned.
[[nodiscard]] bool is_vectorized(const fusion::BasicAccess<std::int64_t>& access, const fusion::SizedKernel& kernel,
                                 int vector, const LaunchFacts& facts);
[[nodiscard]] bool is_vectorized(const fusion::BasicAccess<std::int64_t>& access, const fusion::SizedKernel& kernel,
                                 const Mapping& mapping, const LaunchFacts& facts);
/// Whether an access that consists of parts does: each vector lies in a part, or outside of it.
[[nodiscard]] bool has_vectorized_parts(const fusion::BasicAccess<std::int64_t>& access,
                                        const fusion::SizedKernel& kernel, int vector, const LaunchFacts& facts);

}  // namespace thunder::executors::cuda
