#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "ir/trace.h"

namespace thunder::tracer {

// Operations that traces get of our own accord. None has a comment or a location.

[[nodiscard]] ir::BoundSymbol alias_symbol(ir::ValueId value, ir::ValueId result);
[[nodiscard]] ir::BoundSymbol clone_symbol(ir::ValueId value, ir::ValueId result);
/// The value with these strides: a copy where it has others.
[[nodiscard]] ir::BoundSymbol restride_symbol(ir::ValueId value, const ir::Dims& strides, ir::ValueId result);
[[nodiscard]] ir::BoundSymbol detach_symbol(ir::ValueId value, ir::ValueId result);
/// The sum of two tensors.
[[nodiscard]] ir::BoundSymbol add_symbol(ir::ValueId left, ir::ValueId right, ir::ValueId result);
/// Zeros of a type.
[[nodiscard]] ir::BoundSymbol zeros_symbol(const ir::TensorType& type, ir::ValueId result);
/// Memory for a type.
[[nodiscard]] ir::BoundSymbol empty_symbol(const ir::TensorType& type, ir::ValueId result);

/// Gives `target` what `source` holds.
[[nodiscard]] ir::BoundSymbol copy_symbol(ir::ValueId target, ir::ValueId source);
[[nodiscard]] ir::BoundSymbol resize_symbol(ir::ValueId target, at::IntArrayRef sizes);
/// Lays `target` out anew in its memory; `None` for an offset keeps it.
[[nodiscard]] ir::BoundSymbol lay_out_symbol(ir::ValueId target, at::IntArrayRef sizes, at::IntArrayRef strides,
                                             ir::Argument offset);
/// Needs `value`, and asks nothing of it.
[[nodiscard]] ir::BoundSymbol need_symbol(ir::ValueId value);

}  // namespace thunder::tracer
