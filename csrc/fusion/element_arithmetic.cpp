#include "fusion/element_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace thunder::fusion {
namespace {

using operators::ElementOp;

/// A double as a float of fewer digits holds it, rounded to even.
double round_to(double value, int digits, int least_exponent, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double step = std::ldexp(1.0, exponent - digits + 1);
  const double rounded = std::nearbyint(value / step) * step;
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

constexpr double kPi = 3.14159265358979323846;

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
/// The weight of x in gelu's approximation, of its smaller weight.
double gelu_weight(double x, double tail) { return x < 0 ? tail : 1 - tail; }
double gelu_tanh_slope(double x, double tail) {
  const double inner = 2 * std::sqrt(2 / kPi) * (1 + 3 * 0.044715 * x * x);
  return gelu_weight(x, tail) + x * tail * (1 - tail) * inner;
}

}  // namespace

double round_to(double value, ir::Dtype dtype) {
  if (dtype == ir::Dtype::kBfloat16) return round_to(value, 8, -126, 0x1.FEp127);
  if (dtype == ir::Dtype::kFloat16) return round_to(value, 11, -14, 65504);
  return dtype == ir::Dtype::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
}

std::int64_t wrap_to(std::int64_t value, ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kInt32:
      return static_cast<std::int32_t>(value);
    case ir::Dtype::kInt16:
      return static_cast<std::int16_t>(value);
    case ir::Dtype::kInt8:
      return static_cast<std::int8_t>(value);
    case ir::Dtype::kUint8:
      return static_cast<std::uint8_t>(value);
    default:
      return value;
  }
}

double compute(ElementOp op, double x, double y, double z) {
  switch (op) {
    case ElementOp::kNegate:
      return -x;
    case ElementOp::kAbs:
      return std::abs(x);
    case ElementOp::kSign:
      return (0 < x) - (x < 0);
    case ElementOp::kSquare:
      return x * x;
    case ElementOp::kReciprocal:
      return 1 / x;
    case ElementOp::kSqrt:
      return std::sqrt(x);
    case ElementOp::kRsqrt:
      return 1 / std::sqrt(x);
    case ElementOp::kExp:
      return std::exp(x);
    case ElementOp::kExpm1:
      return std::expm1(x);
    case ElementOp::kLog:
      return std::log(x);
    case ElementOp::kLog1p:
      return std::log1p(x);
    case ElementOp::kSin:
      return std::sin(x);
    case ElementOp::kCos:
      return std::cos(x);
    case ElementOp::kTanh:
      return std::tanh(x);
    case ElementOp::kErf:
      return std::erf(x);
    case ElementOp::kSigmoid:
      return sigmoid(x);
    case ElementOp::kNormalCdf:
      return normal_cdf(x);
    case ElementOp::kTailOfGelu:
      return sigmoid(-2 * std::sqrt(2 / kPi) * std::abs(x + 0.044715 * x * x * x));
    case ElementOp::kRelu:
      return x < 0 ? 0 : x;
    case ElementOp::kFloor:
      return std::floor(x);
    case ElementOp::kCeil:
      return std::ceil(x);
    case ElementOp::kTrunc:
      return std::trunc(x);
    case ElementOp::kRound:
      return std::nearbyint(x);
    case ElementOp::kNot:
      return x == 0;
    case ElementOp::kAdd:
      return x + y;
    case ElementOp::kSubtract:
      return x - y;
    case ElementOp::kMultiply:
      return x * y;
    case ElementOp::kDivide:
      return x / y;
    case ElementOp::kMaximum:
      return x >= y || x != x ? x : y;
    case ElementOp::kMinimum:
      return x <= y || x != x ? x : y;
    case ElementOp::kPower:
      return std::pow(x, y);
    case ElementOp::kAnd:
      return x != 0 && y != 0;
    case ElementOp::kOr:
      return x != 0 || y != 0;
    case ElementOp::kGeluSlope:
      return y + x * std::exp(-0.5 * x * x) / std::sqrt(2 * kPi);
    case ElementOp::kGeluOfTail:
      return x * gelu_weight(x, y);
    case ElementOp::kGeluTanhSlope:
      return gelu_tanh_slope(x, y);
    case ElementOp::kSiluSlope:
      return y * (1 + x * (1 - y));
    case ElementOp::kSigmoidBackward:
      return x * (1 - y) * y;
    case ElementOp::kTanhBackward:
      return x * (1 - y * y);
    case ElementOp::kEqual:
      return x == y;
    case ElementOp::kNotEqual:
      return x != y;
    case ElementOp::kLess:
      return x < y;
    case ElementOp::kLessEqual:
      return x <= y;
    case ElementOp::kGreater:
      return x > y;
    case ElementOp::kGreaterEqual:
      return x >= y;
    case ElementOp::kWhere:
      return x != 0 ? y : z;
  }
  return 0;
}

std::int64_t compute(ElementOp op, std::int64_t x, std::int64_t y, std::int64_t z) {
  const auto wrapped = [](auto function, std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(function(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  };
  switch (op) {
    case ElementOp::kNegate:
      return wrapped(std::minus<>(), 0, x);
    case ElementOp::kAbs:
      return x < 0 ? wrapped(std::minus<>(), 0, x) : x;
    case ElementOp::kSquare:
      return wrapped(std::multiplies<>(), x, x);
    case ElementOp::kAdd:
      return wrapped(std::plus<>(), x, y);
    case ElementOp::kSubtract:
      return wrapped(std::minus<>(), x, y);
    case ElementOp::kMultiply:
      return wrapped(std::multiplies<>(), x, y);
    case ElementOp::kMaximum:
      return std::max(x, y);
    case ElementOp::kMinimum:
      return std::min(x, y);
    case ElementOp::kEqual:
      return x == y;
    case ElementOp::kNotEqual:
      return x != y;
    case ElementOp::kLess:
      return x < y;
    case ElementOp::kLessEqual:
      return x <= y;
    case ElementOp::kGreater:
      return x > y;
    case ElementOp::kGreaterEqual:
      return x >= y;
    case ElementOp::kWhere:
      return x != 0 ? y : z;
    default:
      return static_cast<std::int64_t>(
          compute(op, static_cast<double>(x), static_cast<double>(y), static_cast<double>(z)));
  }
}

}  // namespace thunder::fusion
