#pragma once

#include "ir/operator.h"

namespace thunder::operators {

/// Whether an operator's kernel takes memory to lie in order without looking at strides. PyTorch's formulas see to that
/// by `contiguous()`, which is recorded as nothing for what is recorded as contiguous; a kernel before may have laid it
/// out otherwise.
[[nodiscard]] bool reads_memory_in_order(const ir::Operator& op);

}  // namespace thunder::operators
