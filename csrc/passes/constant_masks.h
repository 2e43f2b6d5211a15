#pragma once

#include <cstdint>
#include <functional>

#include "ir/trace.h"

namespace thunder::passes {

/// The elements that a mask of attention lets through.
enum class MaskContent : std::uint8_t { kOther, kAll, kLowerTriangle };

/// Runs a trace without inputs, whose one output is a mask, and looks at it.
using ReadMask = std::function<MaskContent(const ir::Trace&)>;

/// A mask with more elements is not looked at.
inline constexpr std::int64_t kMaskElements = 1 << 26;

/// Attention whose boolean mask follows from constants alone and lets everything through takes none; one that is a
/// lower triangle becomes `is_causal`. Kernels of attention without masks read less and skip half of the work. Results
/// keep their recorded strides, which another kernel would choose otherwise.
[[nodiscard]] ir::Trace simplify_masks(const ir::Trace& trace, const ReadMask& read, ir::FindOperator find_operator);

inline constexpr const char* kConstantMasks = "constant_masks";

}  // namespace thunder::passes
