#pragma once

#include "ir/trace.h"

namespace thunder::passes {

/// Rotations of two halves on a device, `cat([-x[..., h:], x[..., :h]], -1)` of rotary embeddings, and their
/// derivatives: as sums of padded halves of what lies in memory, in the order of that memory, so that they fuse with
/// the products and sums around them. Products with a small tensor, and casts, are computed on the rotated operands.
[[nodiscard]] ir::Trace fuse_rotations(const ir::Trace& trace, ir::DeviceType device, ir::FindOperator find_operator);

inline constexpr const char* kRotations = "rotations";

}  // namespace thunder::passes
