#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "executors/cuda_kernels/mapping.h"
#include "executors/cuda_kernels/numbers.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// Expressions for places in memory. A kernel's text calls the indices of a row's outer sizes `i0`, `i1`, …, its number
/// `row`, and the sizes of the domain `row_count`, `columns`, `run` and `height`.
class Addresses {
 public:
  using Access = fusion::BasicAccess<std::int64_t>;
  using Part = fusion::BasicPart<std::int64_t>;

  Addresses(const fusion::SizedKernel& kernel, Numbers& numbers) : kernel_(kernel), numbers_(numbers) {}

  /// Declares the indices of a row.
  void declare_indices(Lines& to);
  /// The offset of a row's first element.
  [[nodiscard]] std::string row_offset(const Access& access);
  /// How far behind it the element at a column is.
  [[nodiscard]] std::string column_offset(const Access& access, std::string_view column);
  /// The condition under which the element at `column` lies in the part (empty: it does), and its offset there.
  [[nodiscard]] std::pair<std::string, std::string> place_in(const Part& part, std::int64_t run,
                                                             std::string_view column = "column");

 private:
  [[nodiscard]] std::pair<std::string, std::string> place_in(const fusion::BasicInterval<std::int64_t>& interval,
                                                             const std::string& index, std::int64_t size);

  const fusion::SizedKernel& kernel_;
  Numbers& numbers_;
};

/// The address of an array's first element.
[[nodiscard]] std::string array_text(std::uint32_t number, ir::Dtype dtype);

/// Whether all offsets, of arrays and in scratch memory, fit in 32 bits.
[[nodiscard]] bool has_short_offsets(const fusion::SizedKernel& kernel, const Mapping& mapping,
                                     std::int64_t scratch_bytes);

}  // namespace thunder::executors::cuda
