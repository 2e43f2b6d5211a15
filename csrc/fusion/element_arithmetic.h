#pragma once

#include <cstdint>

#include "ir/dtype.h"
#include "operators/element_op.h"

namespace thunder::fusion {

// Operations of single elements, as the interpreter of kernel graphs computes them.

/// A double as the dtype holds it, rounded to even.
[[nodiscard]] double round_to(double value, ir::Dtype dtype);
/// An integer as the dtype holds it.
[[nodiscard]] std::int64_t wrap_to(std::int64_t value, ir::Dtype dtype);

[[nodiscard]] double compute(operators::ElementOp op, double x, double y, double z);
/// Computes an operation of integers, which wrap around.
[[nodiscard]] std::int64_t compute(operators::ElementOp op, std::int64_t x, std::int64_t y, std::int64_t z);

}  // namespace thunder::fusion
