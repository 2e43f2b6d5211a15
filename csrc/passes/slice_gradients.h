#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Writes the gradient of a slice with a step (`slice_backward` of `x[1::2]`) as a view of a padded view: every second
/// row of `[64, 8]` is one of the two columns of `[32, 2, 8]`. Padding costs what `slice_backward` does, and fuses with
/// the sum of gradients that it mostly is an argument of. Of dimensions that lie in order, where the step divides the
/// one that is sliced, and rows are long enough to be fused.
[[nodiscard]] ir::Trace pad_slice_gradients(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kSliceGradients{"slice_gradients", &pad_slice_gradients};

}  // namespace thunder::passes
