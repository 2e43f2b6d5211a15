#pragma once

#include <cstdint>
#include <vector>

namespace thunder::ir {

struct Dim;

enum class FloatOperation : std::uint8_t { kAdd, kMultiply, kDivide, kPower, kSquareRoot, kNegate };
/// An operation of Python on a float, with a number as its second operand.
struct FloatStep {
  FloatOperation operation = FloatOperation::kAdd;
  double operand = 0;  ///< zero where the operation has no second one

  friend bool operator==(const FloatStep&, const FloatStep&) = default;
};
enum class FloatRounding : std::uint8_t { kFloor, kCeil, kNearestEven, kTruncate };

/// Operations in their order on a size as a float, the last of which makes it an int.
struct FloatFunction {
  std::vector<FloatStep> steps;
  FloatRounding rounding = FloatRounding::kFloor;

  friend bool operator==(const FloatFunction&, const FloatFunction&) = default;
};

/// The size that Python's arithmetic gives, which rounds the float of each step: `int(0.8*s0)`. Floats hold `dim` as it
/// is: its absolute value is at most 2**53.
[[nodiscard]] Dim round_float(const Dim& dim, const FloatFunction& function);

}  // namespace thunder::ir
