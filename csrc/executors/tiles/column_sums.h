#pragma once

#include <cstdint>

#include "executors/tiles/tile_program.h"

namespace thunder::executors::cpu {

/// The sums that one task makes of each column: of some rows in the compute type itself, which then go to doubles, the
/// partial sums of the task.
class ColumnSums {
 public:
  [[nodiscard]] static std::int64_t bytes_of(const TileProgram& program) {
    return 8 * program.columns * program.column_arrays;
  }
  /// `partials` are those of all tasks, `memory` is the task's own.
  ColumnSums(const TileProgram& program, std::int64_t task, double* partials, char* memory);

  /// Adds a tile of rows of `width` columns, the first of which is `column`: `values`, or their products with
  /// `factors`.
  void add(const Instruction& instruction, const char* values, const char* factors, std::int64_t column,
           std::int64_t height, std::int64_t width);
  /// So many rows of a block were added by all instructions.
  void end_rows(std::int64_t height, std::int64_t block, bool ends_block);
  /// Adds the sums made since the last flush to the partial sums.
  void flush(std::int64_t block);

 private:
  [[nodiscard]] char* array(const Sum& sum) const { return memory_ + sum.place * program_.columns * 8; }
  void flush_sum(const Sum& sum, double* partial) const;
  void flush_moments(const Sum& sum, double* partial) const;
  void clear();

  const TileProgram& program_;
  std::int64_t task_;
  double* partials_;
  char* memory_;
  std::int64_t rows_ = 0;  ///< since the last flush
};

/// Partial sums are added in the order of the tasks, whoever ran them; of the columns one of so many parts.
void combine_columns(const TileProgram& program, const double* partials, char* const* arrays, std::int64_t part,
                     std::int64_t part_count);

/// Writes element `element` of an array.
void write_number(const Sum& sum, char* const* arrays, std::int32_t array, std::int64_t element, double value);

}  // namespace thunder::executors::cpu
