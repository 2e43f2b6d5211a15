#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "ir/trace.h"

namespace thunder::transforms {

/// Whether every operation of a trace can be called again: it looks at no data, and brings no gradient of its own.
[[nodiscard]] bool can_repeat(const ir::Trace& trace);

/// The tensor with the strides that its value has in the trace.
[[nodiscard]] at::Tensor as_recorded(const ir::Trace& trace, const at::Tensor& tensor, ir::ValueId id);
/// Gives operations that follow the order of memory, not that of indices, their arguments as they were recorded.
void restore_layouts(const ir::Trace& trace, const ir::BoundSymbol& symbol, torch::jit::Stack& stack);
/// Gives outputs the strides that were recorded.
void restore_outputs(const ir::Trace& trace, std::vector<at::Tensor>& outputs);

}  // namespace thunder::transforms
