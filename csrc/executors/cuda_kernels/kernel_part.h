#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "executors/cuda_kernels/addresses.h"
#include "executors/cuda_kernels/block_sums.h"
#include "executors/cuda_kernels/mapping.h"
#include "executors/cuda_kernels/numbers.h"
#include "executors/cuda_kernels/row_passes.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The state that the parts of a kernel's text share: the graph, its mapping to threads, and what they declare
/// together.
struct KernelContext {
  KernelContext(const fusion::SizedKernel& sized, const LaunchFacts& launch);
  KernelContext(const KernelContext&) = delete;
  KernelContext& operator=(const KernelContext&) = delete;

  const fusion::SizedKernel& kernel;
  const LaunchFacts& facts;
  const Mapping mapping;
  Numbers numbers;
  const RowPasses passes;
  Addresses addresses;
  BlockSums sums;
  SharedMemory shared;
  const std::set<std::size_t> kept;   ///< loads that stay in registers
  const std::set<std::size_t> ahead;  ///< loads that begin before rows are computed
};

/// The C++ of a node's type.
[[nodiscard]] std::string type_of(const fusion::KernelNode& node);
[[nodiscard]] bool is_integer(const fusion::KernelNode& node);
/// The variable that holds a node's value.
[[nodiscard]] std::string value(std::size_t node);

/// The base of what writes a part of a kernel's text: the context, and the names that the parts agree on.
class KernelPart {
 protected:
  using Access = Addresses::Access;

  explicit KernelPart(KernelContext& context);

  [[nodiscard]] const fusion::KernelNode& operand(const fusion::KernelNode& node, std::size_t i = 0) const {
    return passes_.operand(node, i);
  }
  [[nodiscard]] const Access& access(const fusion::KernelNode& node) const { return kernel_.accesses[node.index]; }
  /// The access of a load or store of elements. What is the same for a row is stored as its elements.
  [[nodiscard]] Access over_elements(const fusion::KernelNode& node) const;
  [[nodiscard]] bool loads_vectors(const fusion::KernelNode& node) const;
  [[nodiscard]] bool has_vectors_of_parts(const fusion::KernelNode& node) const;

  [[nodiscard]] std::string value_of(const fusion::KernelNode& node) const { return value(passes_.number(node)); }
  /// The variable that holds the offset of a row in a node's array.
  [[nodiscard]] std::string offset_of(const fusion::KernelNode& node) const;
  [[nodiscard]] std::string offset_at(const fusion::KernelNode& node, std::string_view column);
  [[nodiscard]] std::string vector_of(const Access& access) const;
  /// Reads an element, or a vector.
  [[nodiscard]] std::string read(std::uint32_t array, const std::string& address) const;
  [[nodiscard]] std::string loaded(const fusion::KernelNode& node, const std::string& offset) const;
  [[nodiscard]] std::string stored(const fusion::KernelNode& node) const;
  /// Declares whether all elements of a vector are in the row.
  void emit_is_inside(Lines& to) const;

  const fusion::SizedKernel& kernel_;
  const LaunchFacts& facts_;
  const Mapping& mapping_;
  const RowPasses& passes_;
  Numbers& numbers_;
  Addresses& addresses_;
};

}  // namespace thunder::executors::cuda
