#pragma once

#include <cstdint>
#include <optional>

#include "fusion/kernel_graph.h"
#include "ir/type.h"
#include "passes/merged_linears.h"

namespace thunder::fusion {

/// The abilities of a target's kernels, and its cost model: what is worth a kernel there.
struct Target {
  /// Whether its kernels read and write such tensors.
  bool (*accepts)(const ir::TensorType& type);
  /// Whether its kernels have the operation for elements of the type.
  bool (*has)(ElementOp op, ComputeType type);

  bool permutes = false;          ///< whether permutations, and copies into another order, are part of fusions
  bool draws_by_counter = false;  ///< whether an element's random number is computed by itself
  bool sums_rows_alone = false;   ///< whether a sum over rows is worth a kernel by itself
  bool multiplies_rows = false;   ///< whether a matrix times one row is worth a kernel
  bool stores_rows = false;       ///< whether kernels write to rows that an index chooses

  // Elements of contiguous runs below which a kernel is not worth it:
  std::int64_t least_run = 1;          ///< where rows, or results, are made of several runs
  std::int64_t least_moved_run = 1;    ///< in two orders of memory
  std::int64_t least_reduced_run = 1;  ///< in a row that is only reduced
  // Rows that are interleaved in memory:
  std::int64_t least_interleaved = 1;                    ///< so many of them
  std::int64_t longest_interleaved = INT64_C(1) << 62U;  ///< elements of each
  std::int64_t least_of_functions = 1;                   ///< elements of each, of a softmax
  /// Rows that are added to one.
  std::int64_t least_block = 1;
  /// Elements of blocks of rows that read the same row each.
  std::int64_t least_repeated_block = 1;

  /// Whether a library takes less time for a depthwise convolution of such images than for the gradient of its images;
  /// null: it does not.
  bool (*convolves_depthwise_gradients)(const ir::TensorType& images) = nullptr;

  // Kernels that are launched together (`fusion/batches.h`):
  std::int64_t largest_in_batch = 0;  ///< bytes that one reads and writes; 0: none are
  std::int64_t most_held = 0;         ///< bytes that live longer for a batch

  /// The bytes of memory that such a device has, where it is known; null: programs save what makes them fast.
  std::optional<std::int64_t> (*memory)(ir::Device device) = nullptr;

  /// Linear layers of one input that run as one; null: none do.
  const passes::MergeRule* merges = nullptr;
};

}  // namespace thunder::fusion
