#pragma once

#include "ir/trace.h"
#include "transforms/grad.h"

namespace thunder::transforms {

/// `forward_and_backward` of a computation whose sizes are symbols. It is differentiated at several sizes, where it has
/// numbers: what PyTorch's formulas and the rules do with these shows in the traces, which become one
/// (`ir/generalization.h`). So no formula needs to know of symbols, and a number is never taken for all sizes that
/// holds for one. Throws UserError, with the operation, where the derivative is another one at other sizes.
///
/// The forward saves, first, a tensor without elements whose sizes are the symbols: the backward reads them from it.
[[nodiscard]] ForwardBackward symbolic_forward_and_backward(const ir::Trace& computation);

}  // namespace thunder::transforms
