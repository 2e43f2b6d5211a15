#pragma once

#include <string>

#include "executors/cuda_kernels/kernel_part.h"

namespace thunder::executors::cuda {

/// Stores of elements, of vectors, and of values of rows.
class Stores : private KernelPart {
 public:
  explicit Stores(KernelContext& context) : KernelPart(context) {}

  /// Whether the row that is written to is a value.
  [[nodiscard]] static bool chooses_row(const fusion::KernelNode& node);
  /// Declares where the chosen row of a table begins, and whether it is one.
  void choose_row(const fusion::KernelNode& node, Lines& to);
  void store_row(const fusion::KernelNode& node, Lines& to);
  void store_element(const fusion::KernelNode& node, Lines& before, Lines& inside, Lines& after);

 private:
  /// The condition under which a thread that has a row stores a value.
  [[nodiscard]] std::string may_store(const fusion::KernelNode& node) const;
  [[nodiscard]] std::string chosen_row(const fusion::KernelNode& node) const;
  void store_vector_in_part(const fusion::KernelNode& node, Lines& before, Lines& inside, Lines& after);
};

}  // namespace thunder::executors::cuda
