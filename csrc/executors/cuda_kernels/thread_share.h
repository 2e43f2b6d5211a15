#pragma once

#include <vector>

#include "executors/cuda_kernels/kernel_part.h"

namespace thunder::executors::cuda {

/// The rows and columns of a thread.
class ThreadShare : private KernelPart {
 public:
  explicit ThreadShare(KernelContext& context) : KernelPart(context) {}

  void declare(Lines& to);
  /// Has the first rows of a thread block on their way while the kernel before ends.
  void prefetch(Lines& to);

 private:
  /// The loads of the first pass that differ from row to row, where another one is the same for all rows: those of the
  /// matrix that one row is multiplied with, which no kernel before is likely to have made.
  [[nodiscard]] std::vector<const fusion::KernelNode*> prefetched() const;
};

}  // namespace thunder::executors::cuda
