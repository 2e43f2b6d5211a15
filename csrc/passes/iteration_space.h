#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/type.h"

namespace thunder::passes {

/// What a fusion's loops go over: the dimensions of a dense tensor in the order of its memory, without those of size
/// one. With `rows`, so many of the leading elements' stretches are rows, which reductions reduce, or reduce to.
struct IterationSpace {
  std::vector<std::int64_t> sizes;
  std::int64_t rows = 0;  ///< 0: not cut in two

  [[nodiscard]] std::int64_t count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= size;
    return product;
  }
  friend bool operator==(const IterationSpace&, const IterationSpace&) = default;
};

/// Dimensions with more than one element, the one with the longest stride first.
[[nodiscard]] std::vector<std::size_t> memory_order(const ir::TensorType& type);
/// With a size that begins inside of a row, and ends in another, cut in two.
[[nodiscard]] IterationSpace space_of(const ir::TensorType& type, std::int64_t rows = 0);

/// The finest sizes that both are made of by joining neighbours; nullopt: there are none.
[[nodiscard]] std::optional<std::vector<std::int64_t>> common_refinement(const std::vector<std::int64_t>& left,
                                                                         const std::vector<std::int64_t>& right);
/// The space in which what goes over either of two can run: the same elements, or one's elements are the other's rows.
[[nodiscard]] std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right);
/// How many leading sizes make `rows`; nullopt: none do.
[[nodiscard]] std::optional<std::size_t> leading_sizes(const std::vector<std::int64_t>& sizes, std::int64_t rows);

}  // namespace thunder::passes
