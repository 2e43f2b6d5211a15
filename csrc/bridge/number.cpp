#include "bridge/number.h"

#include <ATen/ScalarOps.h>
#include <c10/util/TypeCast.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"

namespace thunder::bridge {
namespace {

using MathFunction = double (*)(double);
using MathFunctionOfTwo = double (*)(double, double);
using Number = std::optional<c10::Scalar>;

template <typename T>
Number compare(std::string_view operation, T left, T right) {
  if (operation == "==") return c10::Scalar(left == right);
  if (operation == "!=") return c10::Scalar(left != right);
  if (operation == "<") return c10::Scalar(left < right);
  if (operation == "<=") return c10::Scalar(left <= right);
  if (operation == ">") return c10::Scalar(left > right);
  if (operation == ">=") return c10::Scalar(left >= right);
  return std::nullopt;
}

Number power(double base, double exponent) {
  if (base == 0.0 && exponent < 0.0) return std::nullopt;
  if (base < 0.0 && exponent != std::floor(exponent)) return std::nullopt;  // complex
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) return std::nullopt;  // OverflowError
  return c10::Scalar(result);
}

/// As `float_divmod` of CPython.
Number divide_floor(double left, double right, bool remainder) {
  if (right == 0.0) return std::nullopt;
  double mod = std::fmod(left, right);
  double quotient = (left - mod) / right;
  if (mod != 0.0) {
    if ((right < 0.0) != (mod < 0.0)) {
      mod += right;
      quotient -= 1.0;
    }
  } else {
    mod = std::copysign(0.0, right);
  }
  if (remainder) return c10::Scalar(mod);
  if (quotient == 0.0) return c10::Scalar(std::copysign(0.0, left / right));
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1.0;
  return c10::Scalar(floored);
}

Number to_int(double number) {
  constexpr double kLimit = 9.2e18;
  if (!(std::abs(number) < kLimit)) return std::nullopt;
  return c10::Scalar(static_cast<std::int64_t>(number));
}

/// Half to even, as Python does.
Number round_to_int(double number) { return to_int(std::nearbyint(number)); }

/// Returns `round(number, digits)`: the float nearest to the nearest decimal number of so many digits.
Number round_to(double number, std::int64_t digits) {
  constexpr std::int64_t kMostDigits = 22;
  constexpr double kLargest = 1e22;
  if (!std::isfinite(number)) return c10::Scalar(number);
  if (digits < 0 || digits > kMostDigits || std::abs(number) > kLargest) return std::nullopt;
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.begin(), text.end(), number, std::chars_format::fixed, static_cast<int>(digits));
  double rounded = 0;
  if (error != std::errc() || std::from_chars(text.begin(), end, rounded).ec != std::errc()) return std::nullopt;
  return c10::Scalar(rounded);
}

Number compute(std::string_view operation, double left, double right) {
  if (operation == "+") return c10::Scalar(left + right);
  if (operation == "-") return c10::Scalar(left - right);
  if (operation == "*") return c10::Scalar(left * right);
  if (operation == "/") return right == 0.0 ? std::nullopt : Number(left / right);
  if (operation == "//" || operation == "%") return divide_floor(left, right, operation == "%");
  if (operation == "**") return power(left, right);
  if (operation == "neg") return c10::Scalar(-left);
  if (operation == "abs") return c10::Scalar(std::abs(left));
  if (operation == "int" || operation == "trunc") return to_int(left);
  if (operation == "floor") return to_int(std::floor(left));
  if (operation == "ceil") return to_int(std::ceil(left));
  if (operation == "float") return c10::Scalar(left);
  if (operation == "round") return round_to_int(left);
  return compare(operation, left, right);
}

/// Python gives a float where the exponent is negative.
Number power(std::int64_t base, std::int64_t exponent) {
  constexpr std::int64_t kMostBits = 63;
  if (exponent < 0 || exponent > kMostBits) return std::nullopt;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return c10::Scalar(result);
}

Number compute(std::string_view operation, std::int64_t left, std::int64_t right) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // beyond, Python rounds quotients once, doubles twice
  const bool overflows = left == std::numeric_limits<std::int64_t>::min();
  std::int64_t result = 0;
  if (operation == "+") return __builtin_add_overflow(left, right, &result) ? Number() : Number(result);
  if (operation == "-") return __builtin_sub_overflow(left, right, &result) ? Number() : Number(result);
  if (operation == "*") return __builtin_mul_overflow(left, right, &result) ? Number() : Number(result);
  if (operation == "neg") return overflows ? Number() : Number(-left);
  if (operation == "abs") return overflows ? Number() : Number(left < 0 ? -left : left);
  if (operation == "int" || operation == "trunc" || operation == "floor" || operation == "ceil") return left;
  if (operation == "float") return c10::Scalar(static_cast<double>(left));
  if (operation == "/") {
    if (right == 0 || std::abs(left) > kExact || std::abs(right) > kExact || overflows) return std::nullopt;
    return c10::Scalar(static_cast<double>(left) / static_cast<double>(right));
  }
  if (operation == "//" || operation == "%") {
    if (right == 0 || overflows) return std::nullopt;
    const bool rounds = left % right != 0 && (left < 0) != (right < 0);
    return c10::Scalar(operation == "//" ? left / right - (rounds ? 1 : 0) : left % right + (rounds ? right : 0));
  }
  if (operation == "**") return power(left, right);
  if (operation == "round") return c10::Scalar(left);
  return compare(operation, left, right);
}

/// The functions of Python's module `math` that it takes from the C library as they are.
MathFunction math_function(std::string_view name) {
  static constexpr std::pair<std::string_view, MathFunction> kFunctions[] = {
      {"acos", std::acos},   {"asin", std::asin},   {"atan", std::atan}, {"cos", std::cos},   {"cosh", std::cosh},
      {"exp", std::exp},     {"expm1", std::expm1}, {"fabs", std::fabs}, {"log", std::log},   {"log10", std::log10},
      {"log1p", std::log1p}, {"log2", std::log2},   {"sin", std::sin},   {"sinh", std::sinh}, {"sqrt", std::sqrt},
      {"tan", std::tan},     {"tanh", std::tanh}};
  const auto* found = std::ranges::find(kFunctions, name, &std::pair<std::string_view, MathFunction>::first);
  return found == std::end(kFunctions) ? nullptr : found->second;
}

/// Those of two arguments.
MathFunctionOfTwo math_function_of_two(std::string_view name) {
  static constexpr std::pair<std::string_view, MathFunctionOfTwo> kFunctions[] = {{"atan2", std::atan2},
                                                                                  {"copysign", std::copysign},
                                                                                  {"fmod", std::fmod},
                                                                                  {"pow", std::pow},
                                                                                  {"remainder", std::remainder}};
  const auto* found = std::ranges::find(kFunctions, name, &std::pair<std::string_view, MathFunctionOfTwo>::first);
  return found == std::end(kFunctions) ? nullptr : found->second;
}

/// A result that is not finite may be an error.
Number if_finite(double result) { return std::isfinite(result) ? Number(result) : std::nullopt; }

bool is_float(const c10::Scalar& number) { return number.isFloatingPoint(); }

/// Calls `use` with an element of a dtype that not all numbers fit into; false: it is another dtype.
template <typename Use>
bool with_narrow(at::ScalarType dtype, const Use& use) {
  switch (c10::toRealValueType(dtype)) {
#define THUNDER_NARROW(type, name) \
  case at::k##name:                \
    use(type());                   \
    return true;
    THUNDER_NARROW(std::uint8_t, Byte)
    THUNDER_NARROW(std::uint16_t, UInt16)
    THUNDER_NARROW(std::uint32_t, UInt32)
    THUNDER_NARROW(std::uint64_t, UInt64)
    THUNDER_NARROW(std::int8_t, Char)
    THUNDER_NARROW(std::int16_t, Short)
    THUNDER_NARROW(std::int32_t, Int)
    THUNDER_NARROW(std::int64_t, Long)
    THUNDER_NARROW(at::Half, Half)
    THUNDER_NARROW(at::BFloat16, BFloat16)
    THUNDER_NARROW(float, Float)
#undef THUNDER_NARROW
    default:
      return false;
  }
}

struct Range {
  double lowest = 0;
  double highest = 1;
};

Range range_of(at::ScalarType dtype) {
  Range range{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
  if (dtype == at::kBool) return {};
  with_narrow(dtype, [&]<typename Element>(Element) {
    range = {static_cast<double>(std::numeric_limits<Element>::lowest()),
             static_cast<double>(std::numeric_limits<Element>::max())};
  });
  return range;
}

/// The dtype that an operation is named after.
std::optional<at::ScalarType> dtype_named(std::string_view operation) {
  constexpr at::ScalarType kNarrow[] = {at::kByte, at::kUInt16, at::kUInt32, at::kUInt64,   at::kChar, at::kShort,
                                        at::kInt,  at::kLong,   at::kHalf,   at::kBFloat16, at::kFloat};
  const auto* found =
      std::ranges::find(kNarrow, operation, [](at::ScalarType dtype) { return ir::torch_name(from_torch(dtype)); });
  return found == std::end(kNarrow) ? std::nullopt : std::make_optional(*found);
}

/// Python compares and mixes ints and floats exactly; doubles do so up to this.
bool is_exact_double(const c10::Scalar& number) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  return is_float(number) || (number.toLong() <= kExact && number.toLong() >= -kExact);
}

}  // namespace

at::Tensor wrap_number(const c10::Scalar& number) {
  const at::ScalarType dtype = dtype_of(kind_of(number));
  at::Tensor tensor = at::detail::scalar_tensor_static(number, dtype, c10::kCPU);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::Scalar unwrap_number(const at::Tensor& tensor) { return tensor.item(); }

ir::ScalarKind kind_of(const c10::Scalar& number) {
  if (number.isBoolean()) return ir::ScalarKind::kBool;
  if (number.isComplex()) return ir::ScalarKind::kComplex;
  return number.isFloatingPoint() ? ir::ScalarKind::kFloat : ir::ScalarKind::kInt;
}

at::ScalarType dtype_of(ir::ScalarKind kind) {
  switch (kind) {
    case ir::ScalarKind::kBool:
      return at::kBool;
    case ir::ScalarKind::kInt:
      return at::kLong;
    case ir::ScalarKind::kFloat:
      return at::kDouble;
    case ir::ScalarKind::kComplex:
      return at::kComplexDouble;
  }
  throw InternalError("bridge", "a kind of number that does not exist");
}

bool same_number(const c10::Scalar& left, const c10::Scalar& right) {
  if (kind_of(left) != kind_of(right)) return false;
  const auto same_bits = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  switch (kind_of(left)) {
    case ir::ScalarKind::kBool:
    case ir::ScalarKind::kInt:
      return left.toLong() == right.toLong();
    case ir::ScalarKind::kFloat:
      return same_bits(left.toDouble(), right.toDouble());
    case ir::ScalarKind::kComplex: {
      const auto a = left.toComplexDouble();
      const auto b = right.toComplexDouble();
      return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
    }
  }
  return false;
}

bool same_contents(const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() != right.scalar_type() || !left.sizes().equals(right.sizes())) return false;
  const at::Tensor a = left.detach().cpu().contiguous();
  const at::Tensor b = right.detach().cpu().contiguous();
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), static_cast<std::size_t>(a.nbytes())) == 0;
}

bool can_hold(at::ScalarType dtype, const c10::Scalar& number) {
  bool fits = true;
  with_narrow(dtype, [&]<typename Element>(Element) {
    fits = number.isFloatingPoint() ? !c10::overflows<Element, double>(number.toDouble())
                                    : !c10::overflows<Element, std::int64_t>(number.toLong());
  });
  return fits;
}

bool can_hold_all(at::ScalarType dtype, at::ScalarType from) {
  if (dtype == at::kBool) return true;
  const bool loses_nan = c10::isIntegralType(dtype, /*includeBool=*/false) && c10::isFloatingType(from);
  const Range narrow = range_of(dtype);
  const Range wide = range_of(from);
  return !loses_nan && narrow.lowest <= wide.lowest && wide.highest <= narrow.highest;
}

std::optional<c10::Scalar> compute_number(std::string_view operation, const c10::Scalar& left,
                                          const c10::Scalar& right) {
  if (const auto function = math_function(operation)) {
    return is_exact_double(left) ? if_finite(function(left.toDouble())) : std::nullopt;
  }
  if (const auto function = math_function_of_two(operation)) {
    const bool is_exact = is_exact_double(left) && is_exact_double(right);
    return is_exact ? if_finite(function(left.toDouble(), right.toDouble())) : std::nullopt;
  }
  if (operation == "natural") return left.toDouble() < 0 ? std::nullopt : std::make_optional(left);
  if (operation == "round_to") return is_float(left) ? round_to(left.toDouble(), right.toLong()) : std::nullopt;
  if (const auto dtype = dtype_named(operation))
    return can_hold(*dtype, left) ? std::make_optional(left) : std::nullopt;
  if (!is_float(left) && !is_float(right)) return compute(operation, left.toLong(), right.toLong());
  if (!is_exact_double(left) || !is_exact_double(right)) return std::nullopt;
  return compute(operation, left.toDouble(), right.toDouble());
}

}  // namespace thunder::bridge
