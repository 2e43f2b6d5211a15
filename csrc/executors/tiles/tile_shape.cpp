#include "executors/tiles/tile_shape.h"

#include <algorithm>
#include <cstdint>

namespace thunder::executors::cpu {
namespace {

/// Elements of a tile: a handful of registers fit in the first-level cache.
constexpr std::int64_t kTileElements = 2048;
/// Elements that make a task worth handing to another thread.
constexpr std::int64_t kTaskElements = 32768;
/// Tasks over which column sums are split at most, and the rows that each has at least.
constexpr std::int64_t kColumnSumTasks = 32;
constexpr std::int64_t kColumnSumRows = 16;
/// Rows of any length that end where 32 bytes do.
constexpr std::int64_t kLineRows = 16;
/// Columns of a run from which on tiles need not be put together of several.
constexpr std::int64_t kLeastRun = 256;
/// Elements of rows that are worked on together, of which phases find again in a cache what they read.
constexpr std::int64_t kRowElements = 65536;
/// Pieces that rows of several runs are cut into where there is work for several threads.
constexpr std::int64_t kLeastUnits = 16;
/// Rows side by side that are worked on together, where there are so many; at least, for the sake of several threads;
/// and elements of a tile of them.
constexpr std::int64_t kAbreast = 256;
constexpr std::int64_t kLeastAbreast = 64;
constexpr std::int64_t kAbreastElements = 8192;

/// A tile is part of a run, or a run of several rows.
void shape_runs(TileProgram& program) {
  const std::int64_t pieces = (program.run + kTileElements - 1) / kTileElements;
  program.tile_columns = (program.run + pieces - 1) / pieces;
  std::int64_t most_rows = kRowElements / program.columns;
  if (program.rows * program.columns >= 2 * kTaskElements) most_rows = std::min(most_rows, program.rows / kLeastUnits);
  program.tile_rows = std::clamp<std::int64_t>(std::min(most_rows, kTileElements / program.run), 1, program.rows);
}

/// So many rows that what is done for a column pays.
void shape_interleaved(TileProgram& program) {
  std::int64_t rows = std::max(kTileElements / program.columns, kAbreast);
  if (program.rows * program.columns >= 2 * kTaskElements) {
    rows = std::min(rows, std::max(program.rows / kLeastUnits, kLeastAbreast));
  }
  program.tile_rows = std::min(rows, program.block_rows);
  program.tile_columns = std::clamp<std::int64_t>(kAbreastElements / program.tile_rows, 1, program.columns);
}

}  // namespace

void set_shape(const TileDomain& domain, std::vector<Sum>& column_sums, TileProgram& program) {
  program.outer_sizes = domain.outer;
  program.rows = domain.rows();
  program.block_rows = program.rows / domain.blocks;
  program.columns = domain.columns;
  program.splits_columns = domain.splits_columns;
  const std::int64_t columns = std::max<std::int64_t>(domain.columns, 1);
  program.tile_columns = std::min(columns, kTileElements);
  program.tile_rows = columns < kTileElements ? std::min(kTileElements / columns, program.block_rows) : 1;
  // Tiles of many rows end where a cache line does.
  if (program.tile_rows > kLineRows) program.tile_rows -= program.tile_rows % kLineRows;
  program.tile_rows = std::max<std::int64_t>(program.tile_rows, 1);
  program.run = domain.run;
  program.stays_in_runs = domain.run >= kLeastRun;
  if (program.stays_in_runs) shape_runs(program);
  program.interleaved = domain.interleaved;
  if (program.interleaved) shape_interleaved(program);
  const std::int64_t row_units = domain.blocks * units_of_block(program);
  const std::int64_t column_tiles =
      domain.splits_columns ? (columns + program.tile_columns - 1) / program.tile_columns : 1;
  program.unit_count = row_units * column_tiles;
  const std::int64_t elements = program.rows * columns;
  if (column_sums.empty()) {
    program.task_count = std::clamp<std::int64_t>(elements / kTaskElements, 1, program.unit_count);
  } else {
    program.task_count =
        std::clamp<std::int64_t>(program.rows / kColumnSumRows, 1, std::min(kColumnSumTasks, program.unit_count));
    if (elements < kTaskElements) program.task_count = 1;
  }
  program.parallel = program.task_count > 1;
  // Tasks and blocks that have rows in common are a staircase: task + block is a place of each.
  for (Sum& sum : column_sums) {
    sum.place = program.column_arrays;
    program.column_arrays += sum.arrays();
    sum.partials = program.column_partials;
    program.column_partials += (program.task_count + sum.blocks - 1) * sum.arrays();
  }
}

}  // namespace thunder::executors::cpu
