#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "compile/pieces.h"

namespace thunder::dispatch {

/// What a run met at one place: a number's kind and bits, sizes, or a tensor's bytes.
using Met = std::vector<std::int64_t>;

/// What a run with these values, of the recorded trace, meets.
[[nodiscard]] Met meet(const compile::Meeting& meeting, const std::vector<at::Tensor>& values);
/// What the checks of a recorded trace expect after each of its pieces.
[[nodiscard]] std::vector<Met> expected_after(std::span<const compile::Piece> pieces, const ir::Trace& recorded);

}  // namespace thunder::dispatch
