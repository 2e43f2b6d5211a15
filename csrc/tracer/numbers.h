#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <variant>

#include "ir/operator.h"
#include "ir/trace.h"

namespace thunder::tracer {

/// A number that the program took out of a tensor, or computed from such numbers: a value of the trace, which each run
/// reads anew, and what it is in the run that is traced.
struct Number {
  ir::ValueId id = ir::kNoValue;
  c10::Scalar value;
};
/// A size is a number of a trace, too.
using NumberOperand = std::variant<Number, c10::Scalar, ir::Dim>;

/// `prims.item(tensor)`: the one element of a tensor, as a Python number.
[[nodiscard]] const ir::Operator* item_operator();
/// Takes numbers out of a trace that it computes from nothing but sizes, for nobody, and which raise no error.
void drop_unused_numbers(ir::Trace& trace);
/// `prims.number("+", left, right)`: what Python computes; see `bridge::compute_number`.
[[nodiscard]] const ir::Operator* number_operator();
[[nodiscard]] bool is_number(const ir::Trace& trace, ir::ValueId id);

}  // namespace thunder::tracer
