#pragma once

#include <cstddef>
#include <set>

#include "executors/cuda_kernels/column_loop.h"
#include "executors/cuda_kernels/element_values.h"
#include "executors/cuda_kernels/kernel_part.h"
#include "executors/cuda_kernels/stores.h"

namespace thunder::executors::cuda {

/// The loop over a thread's rows: what is computed once for each, and the passes over its columns.
class RowLoop : private KernelPart {
 public:
  explicit RowLoop(KernelContext& context);

  void emit(Lines& to);

 private:
  void emit_rows(Lines& to);
  /// A thread loads what it needs of several rows before it computes the first of them.
  void emit_rows_ahead(Lines& to);
  /// Threads behind the last row compute that row again, and store nothing.
  void emit_place(Lines& to);
  void emit_row(Lines& to);
  /// A node that is computed, stored or added once for each row.
  void emit_for_row(const fusion::KernelNode& node, Lines& to);
  void emit_gathered_row(const fusion::KernelNode& node, Lines& to);
  void emit_pick(const fusion::KernelNode& node, Lines& to);

  const std::set<std::size_t>& ahead_;
  BlockSums& sums_;
  ElementValues elements_;
  Stores stores_;
  ColumnLoop columns_;
};

}  // namespace thunder::executors::cuda
