#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/type.h"

namespace thunder::fusion {

/// The space that a fusion's loops go over: the dimensions of a dense tensor in the order of its memory, without those
/// of size one. With `rows`, the sizes form three groups: `before` x `rows` x the rest. A row, which reductions reduce,
/// or reduce to, has all elements with the same index in the middle group: as many contiguous runs as `before` says.
struct IterationSpace {
  ir::Dims sizes;
  ir::Dim rows = 0;  ///< 0: not cut
  ir::Dim before = 1;
  ir::Dim blocks = 1;  ///< blocks of rows, each with column sums of its own
  /// Rows whose first elements are neighbours in memory, then the second ones: the space is cut into so many rows,
  /// columns, these. 1: a row's elements are neighbours, or runs of them.
  ir::Dim interleaved = 1;

  [[nodiscard]] ir::Dim count() const { return ir::product_of(sizes); }
  /// Elements of a row.
  [[nodiscard]] ir::Dim columns() const { return rows == ir::Dim(0) ? rows : ir::floor_divide(count(), rows); }
  friend bool operator==(const IterationSpace&, const IterationSpace&) = default;
};

/// Dimensions with more than one element, the one with the longest stride first.
[[nodiscard]] std::vector<std::size_t> memory_order(const ir::TensorType& type);
/// So many dimensions from `first` on.
[[nodiscard]] std::vector<std::size_t> dims_from(std::size_t first, std::size_t count);
/// Whether those of two tensors, counted from the last one, follow one another in memory alike.
[[nodiscard]] bool have_same_order(const ir::TensorType& left, const ir::TensorType& right);
/// With sizes that are partly rows cut where rows begin and end.
[[nodiscard]] IterationSpace space_of(const ir::TensorType& type, const ir::Dim& rows = 0, const ir::Dim& before = 1,
                                      const ir::Dim& blocks = 1, const ir::Dim& interleaved = 1);
/// The dimensions of a tensor that rows of such a space have elements in, in the order of memory.
[[nodiscard]] std::vector<std::size_t> column_dims(const ir::TensorType& type, const ir::Dim& rows,
                                                   const ir::Dim& interleaved);

/// The finest sizes that both are made of by joining neighbours, whatever their symbols are; nullopt: there are none.
[[nodiscard]] std::optional<ir::Dims> common_refinement(const ir::Dims& left, const ir::Dims& right);
/// The space in which what goes over either of two can run: the same elements, or one's elements are the other's rows.
[[nodiscard]] std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right);
/// Places of the sizes that are rows, of a space that has some; nullopt: none are.
[[nodiscard]] std::optional<std::vector<std::size_t>> row_places(const IterationSpace& space);

}  // namespace thunder::fusion
