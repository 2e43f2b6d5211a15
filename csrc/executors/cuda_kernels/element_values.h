#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "executors/cuda_kernels/kernel_part.h"

namespace thunder::executors::cuda {

/// The values of elements: loads of them and of vectors, random numbers, and what is computed of these. It knows which
/// vectors are in registers already.
class ElementValues : private KernelPart {
 public:
  explicit ElementValues(KernelContext& context);

  /// Chooses the vectors that are loaded ahead in a pass over a row that is too long for registers.
  void begin_pass(std::size_t pass);
  void end_pass();

  /// Computes an element, and what it needs: vectors `before` the loop over their elements, the rest `inside`, where
  /// the element is at `column`. `is_single`: without vectors.
  void emit_element(std::size_t number, std::set<std::size_t>& defined, Lines& before, Lines& inside,
                    bool is_single = false);
  /// A node that its operands alone decide.
  [[nodiscard]] std::string computed(const fusion::KernelNode& node);
  [[nodiscard]] std::string loaded_vector(const fusion::KernelNode& node);
  /// Loads of several vectors of a row that begin before these are computed, in this pass.
  [[nodiscard]] const std::set<std::size_t>& grouped() const { return grouped_; }

 private:
  [[nodiscard]] std::string element(const fusion::KernelNode& node) const;
  /// Four neighbours share what is computed for one.
  [[nodiscard]] std::string random_text(const fusion::KernelNode& node, Lines& before, bool is_single);
  void emit_vector(const fusion::KernelNode& node, Lines& before);
  /// Later parts hide earlier ones.
  void emit_assembled(const fusion::KernelNode& node, Lines& inside);
  /// Each vector comes from one part.
  void emit_assembled_vector(const fusion::KernelNode& node, Lines& before);

  const std::set<std::size_t>& kept_;
  const std::set<std::size_t>& ahead_;
  const bool is_narrow_;           ///< elements are rounded to 16 bits in the end
  const bool has_narrow_results_;  ///< all results are
  std::set<std::size_t> grouped_;
  std::set<std::size_t> loaded_;  ///< those that stay in registers, and that an earlier pass has loaded
  std::set<std::size_t> loaded_here_;
};

}  // namespace thunder::executors::cuda
