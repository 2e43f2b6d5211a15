#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The passes that a thread makes over its part of a row. Each reduction ends one: what needs its result waits for the
/// next.
class RowPasses {
 public:
  /// `joins`: the sum of `exp(x - m)`, where `m` is the maximum of the row, is computed in the pass that finds `m`.
  explicit RowPasses(const fusion::SizedKernel& kernel, bool joins = false);

  [[nodiscard]] std::size_t count() const { return count_; }
  /// The pass from which on a node's value is known.
  [[nodiscard]] std::size_t of_value(const fusion::KernelNode& node) const { return of_value_[number(node)]; }
  /// The pass that reduces, stores or sums what the node says.
  [[nodiscard]] std::size_t of_work(const fusion::KernelNode& node) const;
  /// The nodes whose work is done in that pass, element by element.
  [[nodiscard]] std::vector<const fusion::KernelNode*> work_of(std::size_t pass) const;
  /// The elements that this work needs.
  [[nodiscard]] std::set<std::size_t> elements_of(std::size_t pass) const;
  /// Whether the node's work is done element by element, and not row by row.
  [[nodiscard]] bool works_on_elements(const fusion::KernelNode& node) const;

  /// The maximum in whose pass a sum of exponentials is computed; null: the node is none of these.
  [[nodiscard]] const fusion::KernelNode* joined_maximum(const fusion::KernelNode& sum) const;
  /// The sum of exponentials that is computed in the pass of a maximum; null: there is none.
  [[nodiscard]] const fusion::KernelNode* joined_sum(const fusion::KernelNode& maximum) const;

  [[nodiscard]] std::size_t number(const fusion::KernelNode& node) const {
    return static_cast<std::size_t>(&node - kernel_.nodes.data());
  }
  [[nodiscard]] const fusion::KernelNode& operand(const fusion::KernelNode& node, std::size_t i = 0) const {
    return kernel_.nodes[node.operands[i]];
  }

 private:
  void visit(const fusion::KernelNode& node, std::set<std::size_t>& seen) const;

  void join_sums();

  const fusion::SizedKernel& kernel_;
  std::map<std::size_t, std::size_t> joined_;  ///< sum of exponentials -> the maximum that it is computed with
  std::vector<std::size_t> of_value_;          ///< by node
  std::size_t count_ = 1;
};

/// Whether the node reduces rows.
[[nodiscard]] bool is_reduction(const fusion::KernelNode& node);
/// Whether the node sums over rows, or everything.
[[nodiscard]] bool is_sum(const fusion::KernelNode& node);

/// Whether a kernel may write results over inputs, as it says (see `KernelGraph::overwrite`): an element is read and
/// written by one thread, which reads it first. `kept`: loads that stay in registers from the first pass that needs
/// them.
[[nodiscard]] bool overwrites_inputs(const fusion::SizedKernel& kernel, const RowPasses& passes,
                                     const std::set<std::size_t>& kept);

}  // namespace thunder::executors::cuda
