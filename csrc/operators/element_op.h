#pragma once

#include <cstdint>

namespace thunder::operators {

// clang-format off
/// Scalar operations, in C++ and as the expressions in element_rows.cpp spell them: functions, and symbols between
/// their operands. The backward ones take the cotangent first. A value that a function and its derivative share is an
/// operation of its own, so that it is computed once: `normal_cdf` (the distribution function of the normal
/// distribution) for gelu, and `tanh_tail` for its approximation. The slopes, and `gelu_of_tail`, take x and that
/// value.
#define THUNDER_FORALL_ELEMENT_FUNCTIONS(_)                                                          \
  _(kAbs, "abs", 1) _(kSign, "sign", 1) _(kSquare, "square", 1) _(kReciprocal, "reciprocal", 1)      \
  _(kSqrt, "sqrt", 1) _(kRsqrt, "rsqrt", 1) _(kExp, "exp", 1) _(kExpm1, "expm1", 1)                  \
  _(kLog, "log", 1) _(kLog1p, "log1p", 1) _(kSin, "sin", 1) _(kCos, "cos", 1) _(kTanh, "tanh", 1)    \
  _(kErf, "erf", 1) _(kSigmoid, "sigmoid", 1) _(kNormalCdf, "normal_cdf", 1)                         \
  _(kTailOfGelu, "tanh_tail", 1) _(kRelu, "relu", 1) _(kFloor, "floor", 1) _(kCeil, "ceil", 1)       \
  _(kTrunc, "trunc", 1) _(kRound, "round", 1) _(kNot, "not", 1)                                      \
  _(kMaximum, "maximum", 2) _(kMinimum, "minimum", 2) _(kPower, "power", 2)                          \
  _(kAnd, "and", 2) _(kOr, "or", 2) _(kGeluSlope, "gelu_slope", 2)                                   \
  _(kGeluOfTail, "gelu_of_tail", 2) _(kGeluTanhSlope, "gelu_tanh_slope", 2)                          \
  _(kSiluSlope, "silu_slope", 2) _(kSigmoidBackward, "sigmoid_backward", 2)                          \
  _(kTanhBackward, "tanh_backward", 2) _(kWhere, "where", 3)
#define THUNDER_FORALL_ELEMENT_SYMBOLS(_)                                                            \
  _(kNegate, "-", 1) _(kAdd, "+", 2) _(kSubtract, "-", 2) _(kMultiply, "*", 2) _(kDivide, "/", 2)    \
  _(kEqual, "==", 2) _(kNotEqual, "!=", 2) _(kLess, "<", 2) _(kLessEqual, "<=", 2)                   \
  _(kGreater, ">", 2) _(kGreaterEqual, ">=", 2)
// clang-format on

/// One scalar operation. `kWhere` takes a condition first.
enum class ElementOp : std::uint8_t {
#define THUNDER_ENUMERATOR(name, spelling, arity) name,
  THUNDER_FORALL_ELEMENT_FUNCTIONS(THUNDER_ENUMERATOR) THUNDER_FORALL_ELEMENT_SYMBOLS(THUNDER_ENUMERATOR)
#undef THUNDER_ENUMERATOR
};

/// Whether the operation takes several times as long as an addition.
[[nodiscard]] constexpr bool is_transcendental(ElementOp op) {
  switch (op) {
    case ElementOp::kRsqrt:
    case ElementOp::kExp:
    case ElementOp::kExpm1:
    case ElementOp::kLog:
    case ElementOp::kLog1p:
    case ElementOp::kSin:
    case ElementOp::kCos:
    case ElementOp::kTanh:
    case ElementOp::kErf:
    case ElementOp::kSigmoid:
    case ElementOp::kNormalCdf:
    case ElementOp::kTailOfGelu:
    case ElementOp::kPower:
      return true;
    default:
      return false;
  }
}

[[nodiscard]] constexpr bool is_comparison(ElementOp op) {
  return op >= ElementOp::kEqual && op <= ElementOp::kGreaterEqual;
}

}  // namespace thunder::operators
