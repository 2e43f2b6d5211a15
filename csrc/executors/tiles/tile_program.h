#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "executors/tiles/kernels.h"

namespace thunder::executors::cpu {

/// The elements of a tile that a register holds: all of them, one for each row, or one for everything.
enum class Extent : std::uint8_t { kTile, kRow, kConstant };

/// The interval of one of the domain's sizes over which an array lies: index `begin` of the domain is its first
/// element.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< may be outside of the domain, as `begin` may
  std::int64_t stride = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
  [[nodiscard]] bool has(std::int64_t i) const { return i >= begin && i < end; }
  /// How far into the array an index of the domain is, in elements.
  [[nodiscard]] std::int64_t offset(std::int64_t i) const { return (i - begin) * stride; }
};

/// An array that stands somewhere in the domain.
struct Part {
  std::uint32_t array = 0;
  std::vector<Interval> outer;  ///< one for each of the program's `outer_sizes`
  Interval runs;
  Interval columns;  ///< columns of a run

  friend bool operator==(const Part&, const Part&) = default;
};

/// How the domain (rows x columns) reads or writes an array. Strides are in elements.
struct Access {
  std::uint32_t array = 0;
  Storage storage = Storage::kFloat;
  std::vector<std::int64_t> outer_strides;  ///< one for each of the program's `outer_sizes`
  std::int64_t inner_stride = 0;            ///< between columns (of a run); 0 with kRow
  Extent extent = Extent::kTile;
  std::int64_t run = 0;  ///< columns after which the next begin `run_stride` further; 0: one stride does for all
  std::int64_t run_stride = 0;
  std::int64_t table_rows = 0;  ///< for kGather: rows among which an index chooses, `table_stride` apart
  std::int64_t table_stride = 0;
  std::vector<Part> parts = {};  ///< for kAssemble: later ones hide earlier ones; for kStore the only target

  /// Between rows that differ in the last outer size only.
  [[nodiscard]] std::int64_t row_stride() const { return outer_strides.empty() ? 0 : outer_strides.back(); }
  friend bool operator==(const Access&, const Access&) = default;
};

/// Where a register's elements lie while a phase works on a tile.
struct Binding {
  enum class Kind : std::uint8_t {
    kWholeRow,  ///< scratch memory as long as a row
    kDense,     ///< in an array that lies as the domain does
    kColumns,   ///< in an array that is the same for all rows of a block
    kAcross,    ///< in an array that lies as the domain does where rows lie side by side: columns are rows apart
  };
  Kind kind = Kind::kWholeRow;
  std::uint16_t target = 0;
  std::uint32_t array = 0;
  std::int64_t element_size = 0;
  std::int64_t block_stride = 0;  ///< for kColumns: elements from a block's columns to the next block's
};

struct Instruction {
  enum class Kind : std::uint8_t {
    kElement,     ///< `element`
    kLoad,        ///< accesses[index] into `out`
    kGather,      ///< kLoad for the rows that `arguments[0]` chooses
    kAssemble,    ///< the parts of accesses[index] into `out`; elsewhere `arguments[0]`, if there is an elsewhere
    kStore,       ///< `arguments[0]` into accesses[index]
    kReduce,      ///< folds rows of `arguments[0]` into `out`, ready at the end of the phase
    kMoments,     ///< as kReduce, mean and variance of rows: `out` and `out2`
    kPick,        ///< for each row the element at the column in `arguments[1]`: `out`, ready at the end of the phase
    kScatterAdd,  ///< `arguments[0]`, plus `arguments[2]` at the column in `arguments[1]` of each row
    kColumnSum,   ///< adds rows to column_sums[index], or to their moments
    kTotal,       ///< adds all elements to totals[index]
  };
  Kind kind = Kind::kElement;
  ComputeType compute_type = ComputeType::kFloat;  ///< the arguments' compute type
  std::uint8_t row_arguments = 0;     ///< a bit for each argument that is one element for each row, of a kTile result
  std::uint8_t column_arguments = 0;  ///< a bit for each argument that is one row for all of a tile
  std::uint8_t across = 0;            ///< a bit for each argument, and bit 3 for the result, that is bound so (kAcross)
  bool by_rows = false;               ///< kStore: rows lie apart
  bool of_products = false;           ///< kReduce and kColumnSum: of products of arguments 0 and 1
  std::uint16_t out = 0;
  std::uint16_t out2 = 0;
  std::uint16_t arguments[3] = {0, 0, 0};
  std::uint32_t index = 0;
  std::uint32_t accumulator = 0;  ///< for kReduce and kMoments: position among the doubles of a row
  double correction = 0;          ///< for kMoments: subtracted from the divisor of the variance
  ReduceOp reduce_op = ReduceOp::kSum;
  ElementKernel element = nullptr;
  ReduceKernel reduce = nullptr;
  MomentsKernel moments = nullptr;
  ColumnsKernel reduce_columns = nullptr;  ///< for kReduce and kMoments, where rows are interleaved
  TransferKernel transfer = nullptr;
};

/// An input that lies as the domain does, so that what the next tile reads comes after what this one does.
struct Stream {
  std::uint32_t array = 0;
  std::int64_t element_size = 0;
};

/// Passes over a tile's rows between which reductions of rows become known.
struct Phase {
  std::vector<Binding> bindings;
  std::vector<Instruction> tile;  ///< for each tile of columns
  std::vector<Instruction> row;   ///< at the end, on what there is one of for each row
  std::vector<Stream> streams;    ///< arrays that are fetched ahead
};

struct Register {
  ComputeType compute_type = ComputeType::kFloat;
  Extent extent = Extent::kTile;
  std::int64_t offset = 0;  ///< in scratch memory; in `constants` for kConstant
};

/// Sums over rows, one for each column, or over everything, times `scale`.
struct Sum {
  ComputeType compute_type = ComputeType::kFloat;
  Storage storage = Storage::kFloat;
  std::int32_t array = -1;    ///< -1: only a divisor
  std::int32_t divisor = -1;  ///< for a total: the total that divides it
  double scale = 1;
  std::int64_t blocks = 1;     ///< for a sum over rows: so many, one after the other
  std::int64_t partials = 0;   ///< where its partial sums begin, in rows of them
  bool is_moments = false;     ///< moments of columns: mean to `array`, variance times `scale` to `variance`
  std::int32_t variance = -1;  ///< another array
  std::int64_t place = 0;      ///< position of its first array among those that a task keeps, each as long as a row

  /// The arrays that a task keeps: for moments three, of doubles (first elements, sums of distances from these, sums of
  /// their squares).
  [[nodiscard]] std::int64_t arrays() const { return is_moments ? 3 : 1; }
};

/// A fusion, ready to run: no allocation but scratch memory, no decision but the tile at hand.
struct TileProgram {
  std::vector<std::int64_t> outer_sizes;  ///< the rows, as a box
  std::int64_t rows = 1;
  std::int64_t block_rows = 1;  ///< rows of a block, which no tile leaves
  std::int64_t columns = 1;
  std::int64_t tile_rows = 1;
  std::int64_t tile_columns = 1;
  bool splits_columns = false;  ///< tiles of columns have nothing to do with one another
  std::int64_t run = 0;         ///< see TileDomain
  bool stays_in_runs = false;   ///< each tile is of one run
  bool interleaved = false;     ///< see TileDomain
  std::vector<Register> registers;
  std::vector<double> constants;
  std::vector<Access> accesses;
  std::vector<Instruction> before;  ///< on rows, before the first phase
  std::vector<Phase> phases;
  std::vector<Sum> column_sums;
  std::int64_t column_partials = 0;  ///< rows of partial sums of all of them
  std::int64_t column_arrays = 0;    ///< that a task keeps for them
  std::vector<Sum> totals;
  std::uint32_t accumulators = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t task_count = 1;  ///< follows from the shape alone: so do all roundings
  std::int64_t unit_count = 1;  ///< tiles, dealt out to the tasks
  bool parallel = false;
  bool overwrites_inputs = false;  ///< may write what was asked for over inputs: it is done reading when it does
};

/// Tiles of a block of rows, one below the other.
[[nodiscard]] inline std::int64_t units_of_block(const TileProgram& program) {
  return (program.block_rows + program.tile_rows - 1) / program.tile_rows;
}

/// Calls a function for each task below a count, on several threads or one.
using RunTasks = void (*)(std::int64_t count, bool parallel, void (*task)(void* context, std::int64_t index),
                          void* context);

/// Runs a program on arrays; `arrays[i]` is the first element of array i. False: a row of kGather, or a column of kPick
/// or kScatterAdd, does not exist, and what was written is of no use.
[[nodiscard]] bool run(const TileProgram& program, char* const* arrays, RunTasks run_tasks);

}  // namespace thunder::executors::cpu
