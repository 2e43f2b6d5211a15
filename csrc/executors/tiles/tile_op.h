#pragma once

#include <cstdint>

namespace thunder::executors::cpu {

/// The type that the elements of a register are computed in: bfloat16 and float16 in float, integers exactly.
enum class ComputeType : std::uint8_t { kFloat, kDouble, kInt, kBool };
[[nodiscard]] constexpr std::int64_t size_of(ComputeType compute_type) {
  return compute_type == ComputeType::kFloat ? 4 : compute_type == ComputeType::kBool ? 1 : 8;
}

/// The type of elements in memory.
enum class Storage : std::uint8_t { kBool, kUint8, kInt8, kInt16, kInt32, kInt64, kHalf, kBfloat16, kFloat, kDouble };
[[nodiscard]] constexpr std::int64_t size_of(Storage storage) {
  constexpr std::int64_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(storage)];
}
[[nodiscard]] constexpr ComputeType compute_type_of(Storage storage) {
  if (storage == Storage::kBool) return ComputeType::kBool;
  if (storage < Storage::kHalf) return ComputeType::kInt;
  return storage == Storage::kDouble ? ComputeType::kDouble : ComputeType::kFloat;
}

// clang-format off
// Operations of one argument.
#define THUNDER_FORALL_UNARY_TILE_OPS(_)                                                                    \
  _(kCopy) _(kNegate) _(kAbs) _(kSign) _(kSquare) _(kReciprocal) _(kSqrt) _(kRsqrt) _(kExp) _(kExpm1)       \
  _(kLog) _(kLog1p) _(kSin) _(kCos) _(kTanh) _(kErf) _(kSigmoid) _(kNormalCdf) _(kTailOfGelu) _(kRelu)     \
  _(kFloor) _(kCeil) _(kTrunc) _(kRound) _(kIsNan) _(kNot) _(kToBfloat16) _(kToHalf) _(kToInt8)             \
  _(kToUint8) _(kToInt16) _(kToInt32)                                                                       \
  _(kSilu) _(kSiluDerivative) _(kGelu) _(kGeluDerivative) _(kGeluTanh) _(kGeluTanhDerivative)

// Operations of two arguments; the backward ones take the cotangent first. A value that a function and its derivative
// both need is an operation of its own, made once: the distribution function of gelu (kNormalCdf), the hyperbolic
// tangent of its approximation. The slopes, and kGeluOfTail, take x and that value. Where only one of them is needed,
// both become one (tile_pairs.cpp): kSilu, kSiluDerivative and the like.
#define THUNDER_FORALL_BINARY_TILE_OPS(_)                                                                   \
  _(kAdd) _(kSubtract) _(kMultiply) _(kDivide) _(kMaximum) _(kMinimum) _(kPower) _(kEqual) _(kNotEqual)     \
  _(kLess) _(kLessEqual) _(kGreater) _(kGreaterEqual) _(kAnd) _(kOr) _(kGeluSlope) _(kGeluOfTail)   \
  _(kGeluTanhSlope) _(kSiluSlope) _(kSigmoidBackward) _(kTanhBackward)

// Operations of three arguments: two operations of floats, the second of the first one's result and the last argument
// (tile_pairs.cpp), each rounded as by itself. kSubtractProduct: the last argument minus the product.
#define THUNDER_FORALL_TERNARY_TILE_OPS(_)                                                                  \
  _(kMultiplyAdd) _(kMultiplySubtract) _(kSubtractProduct) _(kMultiplyMultiply) _(kAddAdd) _(kAddMultiply)  \
  _(kSubtractMultiply)
// clang-format on

/// Arithmetic of tiles, element by element. Conversions read any compute type. kWhere takes a bool, then two of the
/// compute type.
enum class TileOp : std::uint8_t {
#define THUNDER_ENUMERATOR(name) name,
  THUNDER_FORALL_UNARY_TILE_OPS(THUNDER_ENUMERATOR) THUNDER_FORALL_BINARY_TILE_OPS(THUNDER_ENUMERATOR)
      THUNDER_FORALL_TERNARY_TILE_OPS(THUNDER_ENUMERATOR)
#undef THUNDER_ENUMERATOR
          kWhere,
  kConvertToFloat,
  kConvertToDouble,
  kConvertToInt,
  kConvertToBool,
};

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

}  // namespace thunder::executors::cpu
