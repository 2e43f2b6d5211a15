#pragma once

#include <cstdint>
#include <string_view>

#include "ir/operator.h"
#include "operators/element_expression.h"

namespace thunder::operators {

/// For which tensors the expression is the operator's meaning, and the dtype that it is computed in.
enum class ElementDomain : std::uint8_t {
  kNumbers,     ///< the result's dtype; it can hold all numbers that the call names
  kReal,        ///< the result's dtype, which is a floating-point one
  kFloats,      ///< the result's dtype; that and the first parameter's are floating-point ones
  kBools,       ///< bools, from bools
  kComparison,  ///< the dtype that both operands are promoted to; the result is a bool
  kSelection,   ///< the result's dtype; a tensor chooses between others, and is a bool
  kCast,        ///< the result's dtype: the operand is rounded to it
  kExpansion,   ///< an element of the operand, or a number, for each of the result: nothing is computed
  kCopy,        ///< each element of the operand, in memory of its own
  kView,        ///< the elements of the operand, in their order, under other sizes
};

/// The arithmetic of an elementwise operator.
struct Elements {
  ElementDomain domain = ElementDomain::kNumbers;
  ElementExpression expression;
  double work = 0;  ///< for each element, in additions; 0: follows from the operations
};

/// The operator's elements; null: it is not elementwise, or nobody has written its expression.
[[nodiscard]] const Elements* find_elements(const ir::Operator& op);
/// Whether an overload of the operator of that name is elementwise.
[[nodiscard]] bool is_elementwise(std::string_view name);

/// Additions that a call takes for each element.
[[nodiscard]] double work_of(const Elements& elements, const ir::ArgumentList& arguments);

}  // namespace thunder::operators
