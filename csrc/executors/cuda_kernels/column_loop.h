#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "executors/cuda_kernels/element_values.h"
#include "executors/cuda_kernels/kernel_part.h"
#include "executors/cuda_kernels/row_reductions.h"
#include "executors/cuda_kernels/stores.h"

namespace thunder::executors::cuda {

/// A pass over a row: the loop over a thread's columns, in which it reduces, stores and sums elements.
class ColumnLoop : private KernelPart {
 public:
  ColumnLoop(KernelContext& context, ElementValues& elements, Stores& stores)
      : KernelPart(context), elements_(elements), stores_(stores), reductions_(context), sums_(context.sums) {}

  void emit_pass(std::size_t pass, Lines& to);

 private:
  /// The loop over a thread's columns of a row.
  void emit_columns(const Lines& before, const Lines& inside, const Lines& after, Lines& to);
  /// Begins the loops over groups of vectors, and over the vectors of a group, which are loaded before the second one.
  void emit_grouped_loads(const std::string& begin, std::int64_t step, Lines& to);
  /// The loop over the elements of a vector, all of them or those that a condition holds for.
  void emit_elements(const Lines& inside, std::string_view condition, Lines& to) const;

  ElementValues& elements_;
  Stores& stores_;
  RowReductions reductions_;
  BlockSums& sums_;
};

}  // namespace thunder::executors::cuda
