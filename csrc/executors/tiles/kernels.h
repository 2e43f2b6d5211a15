#pragma once

#include <cstddef>
#include <cstdint>

#include "executors/tiles/tile_op.h"

namespace thunder::executors::cpu {

/// Computes `count` elements. An argument is an array, or one element for all (see `scalars`). `out` may be an
/// argument.
using ElementKernel = void (*)(void* out, const void* a, const void* b, const void* c, std::int64_t count);
/// Rows of `count` elements, which are `stride` apart where they are read.
struct Transfer {
  std::int64_t count = 1;
  std::int64_t stride = 1;
  std::int64_t rows = 1;
  std::int64_t to_row = 0;  ///< from the first element of a row to that of the next one
  std::int64_t from_row = 0;
};
/// Between memory and a register.
using TransferKernel = void (*)(void* to, const void* from, const Transfer& transfer);
/// Folds `count` elements into an accumulator: a double for float and double, an int64 for integers.
using ReduceKernel = void (*)(void* accumulator, const void* values, std::int64_t count);
/// Mean, sum of squared distances from it, and count, as three doubles, joined with those of `count` elements.
using MomentsKernel = void (*)(double* moments, const void* values, std::int64_t count);

/// Rows and columns of a tile, and from one array of sums, or of a column, to the next one.
struct ColumnTile {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t step;
};
/// Folds columns, arrays with an element for each row, into as many accumulators, or moments, of rows.
using ColumnsKernel = void (*)(double* accumulators, const void* values, const ColumnTile& tile);

/// Words of state of a Mersenne twister, which it makes anew together.
inline constexpr int kTwisterBlock = 624;
/// Compares `count` numbers of 53 bits with `threshold` and writes `one` where they are less, else zero. Each is made
/// of the next two words of a Mersenne twister, as they lie in its state: the first one gives the high bits.
using BernoulliKernel = void (*)(void* out, const std::uint32_t* words, std::uint64_t threshold, std::uint64_t one,
                                 std::int64_t count);

/// Lays `channels` elements of each of `count` positions, `stride` elements apart, side by side as lanes: a block's
/// width for each position, zero where there are fewer channels.
using PackKernel = void (*)(void* to, const void* from, std::int64_t stride, std::int64_t channels, std::int64_t count);

/// Rows of a depthwise convolution's gradient, and the rows of its input that they meet at one row of the weights, both
/// packed: a block of channels for each column.
struct TapRows {
  const void* gradient;  ///< the first row
  const void* input;     ///< the input rows that they are multiplied by
  std::int64_t gradient_row;
  std::int64_t input_row;  ///< in elements, from what one row meets to what the next one does
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t input_columns;
  std::int64_t first;  ///< input column that the first tap meets at column 0; outside of the image it meets nothing
  std::int64_t stride;
  std::int64_t dilation;
};
inline constexpr int kMostTaps = 8;
/// Adds products of gradients and inputs to the sums of some taps side by side: a block of channels for each.
using TapKernel = void (*)(double* sums, const TapRows& rows);

/// The kernels for one kind of processor.
struct Kernels {
  const char* name;
  /// `scalars`: a bit for each argument that is one element for all. Null: there is none.
  ElementKernel (*element)(TileOp op, ComputeType compute_type, unsigned scalars);
  TransferKernel (*load)(Storage from, bool strided);
  /// `streams`: past the caches, for what is not read soon.
  TransferKernel (*store)(Storage to, bool streams);
  ReduceKernel (*reduce)(ReduceOp op, ComputeType compute_type);
  MomentsKernel (*moments)(ComputeType compute_type);
  /// Null: there is none, as for integers.
  ColumnsKernel (*reduce_columns)(ReduceOp op, ComputeType compute_type);
  ColumnsKernel (*join_moments)(ComputeType compute_type);
  /// Adds `count` elements to as many sums of the same compute type.
  void (*add_to)(ComputeType compute_type, void* sums, const void* values, std::int64_t count);
  /// Adds products of two arrays of floats: into one accumulator, and to as many sums.
  void (*sum_products)(void* accumulator, const void* a, const void* b, std::int64_t count);
  void (*add_products_to)(void* sums, const void* a, const void* b, std::int64_t count);
  /// Adds distances of the elements from the first of their column, and the squares of these, to arrays of so many
  /// columns: first elements, sums, sums of squares. `begins`: the first row of the tile is what they are distant from.
  void (*add_moments)(ComputeType compute_type, double* moments, const void* values, const ColumnTile& tile,
                      bool begins);
  /// The block of a Mersenne twister's state that follows `block`.
  void (*twist)(std::uint32_t* next, const std::uint32_t* block);
  /// For results of so many bytes each: 1, 2, 4 or 8.
  BernoulliKernel (*bernoulli)(std::size_t element_size);
  /// Channels of a packed block: as many as a vector has lanes.
  std::int64_t (*block_width)(ComputeType compute_type);
  PackKernel (*pack)(Storage from);
  TapKernel (*taps)(ComputeType compute_type, int count);
};

/// The fastest kernels that this processor, and ATEN_CPU_CAPABILITY, allow.
[[nodiscard]] const Kernels& kernels();

namespace capability_default {
extern const Kernels kKernels;
}
namespace capability_avx2 {
extern const Kernels kKernels;
}
namespace capability_avx512 {
extern const Kernels kKernels;
}

}  // namespace thunder::executors::cpu
