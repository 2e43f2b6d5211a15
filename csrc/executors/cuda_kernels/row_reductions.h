#pragma once

#include "executors/cuda_kernels/kernel_part.h"

namespace thunder::executors::cuda {

/// Reductions of rows: each thread reduces its elements, then the threads of a row reduce what they have.
class RowReductions : private KernelPart {
 public:
  explicit RowReductions(KernelContext& context) : KernelPart(context), shared_(context.shared) {}

  /// Declares what a thread reduces to.
  void declare(const fusion::KernelNode& node, Lines& to) const;
  /// Reduces an element.
  void add(const fusion::KernelNode& node, Lines& inside) const;
  /// A vector's share of the sum of exponentials, and of the maximum that is subtracted in them.
  void add_exponentials(const fusion::KernelNode& sum, Lines& before, Lines& inside, Lines& after, Lines& to) const;
  void reduce_over_threads(const fusion::KernelNode& node, Lines& to);

 private:
  SharedMemory& shared_;
};

}  // namespace thunder::executors::cuda
