#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "executors/tiles/tile_program.h"

namespace thunder::executors::cpu {

/// The place of a tile in a program's domain, and how its elements come from arrays and go there.
class TileTransfers {
 protected:
  /// `is_out_of_bounds` is set where rows are chosen that there are not.
  TileTransfers(const TileProgram& program, char* const* arrays, std::atomic<bool>& is_out_of_bounds)
      : program_(program), arrays_(arrays), is_out_of_bounds_(is_out_of_bounds), at_(program.registers.size()) {}

  void load_rows(const Instruction& instruction);
  void load_tile(const Instruction& instruction);
  void gather(const Instruction& instruction);
  void assemble(const Instruction& instruction);
  void store_tile(const Instruction& instruction);

  /// Where a tile begins in an array that lies as the domain does.
  [[nodiscard]] std::int64_t dense_offset(std::int64_t row, std::int64_t column) const;
  [[nodiscard]] std::int64_t dense_offset() const { return dense_offset(first_row_, column_); }
  /// Where the tile behind this one begins in such an array, in the same phase.
  [[nodiscard]] std::int64_t next_offset() const;

  const TileProgram& program_;
  char* const* arrays_;
  std::atomic<bool>& is_out_of_bounds_;
  std::vector<char*> at_;  ///< by register: its elements
  std::int64_t block_ = 0;
  std::int64_t first_row_ = 0;
  std::int64_t height_ = 0;
  std::int64_t column_ = 0;
  std::int64_t width_ = 0;

 private:
  /// Where the row begins in an array, in elements.
  [[nodiscard]] std::int64_t row_offset(const Access& access, std::int64_t row) const;
  /// How far into a row a column is in an array, in elements.
  [[nodiscard]] static std::int64_t column_offset(const Access& access, std::int64_t column);
  /// Calls `visit(row, count)` for rows of the tile, from the first of them on, that differ in the last outer size
  /// only.
  template <typename Visit>
  void for_each_block(const Visit& visit) const;
  /// The elements that some rows of a tile and a part have in common.
  struct Piece {
    std::int64_t place = 0;   ///< position of the first element in the tile
    std::int64_t offset = 0;  ///< in the part's array
    std::int64_t rows = 0;
    std::int64_t row_stride = 0;
    std::int64_t count = 0;  ///< columns
  };
  [[nodiscard]] char* at(const Access& access, const Part& part, const Piece& piece) const;
  template <typename Visit>
  void for_each_piece(const Access& access, const Part& part, const Visit& visit) const;
  /// The common elements of a part and of `count` rows from `row` on, which differ in the last outer size only.
  [[nodiscard]] std::optional<Piece> rows_of(const Part& part, std::int64_t row, std::int64_t count) const;
  template <typename Visit>
  void visit_columns(const Access& access, const Part& part, const Piece& rows, const Visit& visit) const;
  /// Calls `move` with the places, in memory and in the tile, of the columns that lie in one run.
  template <typename Move>
  void move_runs(const Access& access, char* tile, const Move& move);
  /// Calls `move` with the places, in memory and in the tile, of each column of rows that lie side by side.
  template <typename Move>
  void move_columns(const Access& access, char* tile, const Move& move);
  void store_part(const Instruction& instruction);
};

}  // namespace thunder::executors::cpu
