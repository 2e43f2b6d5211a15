#pragma once

#include <cstddef>
#include <vector>

#include "ir/trace.h"

namespace thunder::fusion {

/// The kernels of a batch, in order: its results are theirs, one behind the other.
struct BatchMember {
  const ir::BoundSymbol* kernel = nullptr;
  std::vector<std::size_t> inputs;  ///< places among the batch's distinct values of what the kernel reads
  std::size_t result_count = 0;
};
[[nodiscard]] std::vector<BatchMember> members_of(const ir::BoundSymbol& batch);

}  // namespace thunder::fusion
