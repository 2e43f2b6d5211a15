#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "executors/tiles/tile_program.h"

namespace thunder::executors::cpu {

/// The place of a tile in a program's domain, and how its elements come from arrays and go there. All is inline: where
/// the compiler sees that nobody else changes the place it keeps it in registers, 5 % of the time that short rows take.
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

inline std::int64_t TileTransfers::dense_offset(std::int64_t row, std::int64_t column) const {
  const std::int64_t run = program_.run;
  if (run == 0) return row * program_.columns + column;
  return (row + column / run * program_.rows) * run + column % run;
}

inline std::int64_t TileTransfers::next_offset() const {
  if (program_.run == 0) return dense_offset() + height_ * width_;
  const bool ends_rows = column_ + width_ >= program_.columns;
  return ends_rows ? dense_offset(first_row_ + height_, 0) : dense_offset(first_row_, column_ + width_);
}

inline std::int64_t TileTransfers::row_offset(const Access& access, std::int64_t row) const {
  if (program_.outer_sizes.size() == 1) return row * access.outer_strides[0];
  std::int64_t offset = 0;
  for (std::size_t i = program_.outer_sizes.size(); i-- > 0;) {
    offset += row % program_.outer_sizes[i] * access.outer_strides[i];
    row /= program_.outer_sizes[i];
  }
  return offset;
}

inline std::int64_t TileTransfers::column_offset(const Access& access, std::int64_t column) {
  if (access.run == 0) return column * access.inner_stride;
  return column / access.run * access.run_stride + column % access.run * access.inner_stride;
}

template <typename Visit>
void TileTransfers::for_each_block(const Visit& visit) const {
  const std::int64_t size = program_.outer_sizes.empty() ? 1 : program_.outer_sizes.back();
  for (std::int64_t row = 0; row < height_;) {
    const std::int64_t count = std::min(height_ - row, size - (first_row_ + row) % size);
    visit(row, count);
    row += count;
  }
}

template <typename Move>
void TileTransfers::move_runs(const Access& access, char* tile, const Move& move) {
  const std::int64_t size = size_of(access.storage);
  const std::int64_t step = size_of(compute_type_of(access.storage));
  const std::int64_t first_place = column_ % access.run;
  for (std::int64_t row = 0; row < height_; ++row) {
    std::int64_t offset = row_offset(access, first_row_ + row) + column_ / access.run * access.run_stride;
    std::int64_t place = first_place;
    for (std::int64_t left = width_; left > 0; place = 0, offset += access.run_stride) {
      const std::int64_t count = std::min(access.run - place, left);
      move(arrays_[access.array] + (offset + place * access.inner_stride) * size, tile, count);
      tile += count * step;
      left -= count;
    }
  }
}

template <typename Move>
void TileTransfers::move_columns(const Access& access, char* tile, const Move& move) {
  const std::int64_t offset = row_offset(access, first_row_) + column_ * access.inner_stride;
  char* memory = arrays_[access.array] + offset * size_of(access.storage);
  for (std::int64_t column = 0; column < width_; ++column) {
    move(memory, tile);
    memory += access.inner_stride * size_of(access.storage);
    tile += height_ * size_of(compute_type_of(access.storage));
  }
}

inline void TileTransfers::load_rows(const Instruction& instruction) {
  const Access& access = program_.accesses[instruction.index];
  const std::int64_t size = size_of(access.storage);
  const char* array = arrays_[access.array];
  const std::int64_t step = size_of(compute_type_of(access.storage));
  for_each_block([&](std::int64_t row, std::int64_t count) {
    instruction.transfer(at_[instruction.out] + row * step, array + row_offset(access, first_row_ + row) * size,
                         {.count = count, .stride = access.row_stride()});
  });
}

inline void TileTransfers::load_tile(const Instruction& instruction) {
  const Access& access = program_.accesses[instruction.index];
  if (access.run != 0 && !program_.stays_in_runs) {
    move_runs(access, at_[instruction.out], [&](char* memory, char* tile, std::int64_t count) {
      instruction.transfer(tile, memory, {.count = count, .stride = access.inner_stride});
    });
    return;
  }
  if (program_.interleaved) {
    move_columns(access, at_[instruction.out], [&](char* memory, char* tile) {
      instruction.transfer(tile, memory, {.count = height_, .stride = access.row_stride()});
    });
    return;
  }
  const std::int64_t size = size_of(access.storage);
  const std::int64_t step = size_of(compute_type_of(access.storage)) * width_;
  const char* array = arrays_[access.array] + column_offset(access, column_) * size;
  const std::int64_t row_stride = access.row_stride();
  for_each_block([&](std::int64_t row, std::int64_t count) {
    instruction.transfer(
        at_[instruction.out] + row * step, array + row_offset(access, first_row_ + row) * size,
        {.count = width_, .stride = access.inner_stride, .rows = count, .to_row = width_, .from_row = row_stride});
  });
}

inline void TileTransfers::gather(const Instruction& instruction) {
  const Access& table = program_.accesses[instruction.index];
  const std::int64_t size = size_of(table.storage);
  const std::int64_t step = size_of(compute_type_of(table.storage)) * width_;
  const char* array = arrays_[table.array] + column_ * table.inner_stride * size;
  const auto* rows = reinterpret_cast<const std::int64_t*>(at_[instruction.arguments[0]]);
  for (std::int64_t row = 0; row < height_; ++row) {
    if (rows[row] < 0 || rows[row] >= table.table_rows) {
      is_out_of_bounds_ = true;
      continue;
    }
    instruction.transfer(at_[instruction.out] + row * step, array + rows[row] * table.table_stride * size,
                         {.count = width_, .stride = table.inner_stride});
  }
}

template <typename Visit>
void TileTransfers::for_each_piece(const Access& access, const Part& part, const Visit& visit) const {
  for_each_block([&](std::int64_t row, std::int64_t count) {
    if (auto piece = rows_of(part, row, count)) visit_columns(access, part, *piece, visit);
  });
}

inline std::optional<TileTransfers::Piece> TileTransfers::rows_of(const Part& part, std::int64_t row,
                                                                  std::int64_t count) const {
  Piece piece{.place = row * width_, .rows = count};
  std::int64_t rest = first_row_ + row;
  for (std::size_t i = program_.outer_sizes.size(); i-- > 0;) {
    const Interval& interval = part.outer[i];
    std::int64_t index = rest % program_.outer_sizes[i];
    rest /= program_.outer_sizes[i];
    if (i + 1 == program_.outer_sizes.size()) {
      const std::int64_t first = std::max(index, interval.begin);
      piece.rows = std::min(index + count, interval.end) - first;
      piece.row_stride = interval.stride;
      piece.place += (first - index) * width_;
      index = first;
    }
    if (!interval.has(index)) return std::nullopt;
    piece.offset += interval.offset(index);
  }
  return piece.rows > 0 ? std::make_optional(piece) : std::nullopt;
}

template <typename Visit>
void TileTransfers::visit_columns(const Access& access, const Part& part, const Piece& rows, const Visit& visit) const {
  const std::int64_t run = access.run != 0 ? access.run : program_.columns;
  for (std::int64_t first = column_; first < column_ + width_;) {  // those that lie in one run
    const std::int64_t start = first / run * run;
    const std::int64_t last = std::min(start + run, column_ + width_);
    const std::int64_t begin = std::max(first, start + part.columns.begin);
    const std::int64_t count = std::min(last, start + part.columns.end) - begin;
    if (count > 0 && part.runs.has(start / run)) {
      Piece piece = rows;
      piece.place += begin - column_;
      piece.offset += part.runs.offset(start / run) + part.columns.offset(begin - start);
      piece.count = count;
      visit(piece);
    }
    first = last;
  }
}

inline char* TileTransfers::at(const Access& access, const Part& part, const Piece& piece) const {
  return arrays_[part.array] + piece.offset * size_of(access.storage);
}

inline void TileTransfers::assemble(const Instruction& instruction) {
  const Access& access = program_.accesses[instruction.index];
  char* tile = at_[instruction.out];
  if (instruction.element != nullptr) {
    instruction.element(tile, at_[instruction.arguments[0]], nullptr, nullptr, height_ * width_);
  }
  for (const Part& part : access.parts) {
    for_each_piece(access, part, [&](const Piece& piece) {
      instruction.transfer(tile + piece.place * size_of(compute_type_of(access.storage)), at(access, part, piece),
                           {.count = piece.count,
                            .stride = part.columns.stride,
                            .rows = piece.rows,
                            .to_row = width_,
                            .from_row = piece.row_stride});
    });
  }
}

inline void TileTransfers::store_part(const Instruction& instruction) {
  const Access& access = program_.accesses[instruction.index];
  const char* tile = at_[instruction.arguments[0]];
  for_each_piece(access, access.parts[0], [&](const Piece& piece) {
    instruction.transfer(at(access, access.parts[0], piece), tile + piece.place * size_of(instruction.compute_type),
                         {.count = piece.count, .rows = piece.rows, .to_row = piece.row_stride, .from_row = width_});
  });
}

inline void TileTransfers::store_tile(const Instruction& instruction) {
  const Access& access = program_.accesses[instruction.index];
  if (!access.parts.empty()) return store_part(instruction);
  char* from = at_[instruction.arguments[0]];
  if (access.run != 0 && !program_.stays_in_runs) {
    move_runs(access, from, [&](char* memory, char* tile, std::int64_t count) {
      instruction.transfer(memory, tile, {.count = count});
    });
    return;
  }
  if (program_.interleaved) {
    move_columns(access, from,
                 [&](char* memory, char* tile) { instruction.transfer(memory, tile, {.count = height_}); });
    return;
  }
  const std::int64_t size = size_of(access.storage);
  char* array = arrays_[access.array];
  if (!instruction.by_rows) {
    instruction.transfer(array + dense_offset() * size, from, {.count = height_ * width_});
    return;
  }
  const std::int64_t step = size_of(instruction.compute_type) * width_;
  const std::int64_t row_stride = access.row_stride();
  for_each_block([&](std::int64_t row, std::int64_t count) {
    instruction.transfer(array + (row_offset(access, first_row_ + row) + column_) * size, from + row * step,
                         {.count = width_, .rows = count, .to_row = row_stride, .from_row = width_});
  });
}

}  // namespace thunder::executors::cpu
