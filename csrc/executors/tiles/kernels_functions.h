// Included by kernels_impl.h, inside of its namespace: what operations do to one element.

// clang-format off
/// Element functions by operation; `kDefined` says for which compute types.
template <TileOp op> struct Unary;
template <TileOp op> struct Binary;
template <TileOp op> struct Ternary;
/// Takes Floats, too.
template <TileOp op> constexpr bool kIsFunction = false;
#define THUNDER_UNARY(name, condition, ...)                                       \
  template <> struct Unary<TileOp::name> {                                        \
    template <typename T> static constexpr bool kDefined = condition;             \
    template <typename T> static inline auto apply(T x) { __VA_ARGS__; }          \
  };
#define THUNDER_FUNCTION(name, ...)                                               \
  template <> constexpr bool kIsFunction<TileOp::name> = true;                    \
  THUNDER_UNARY(name, THUNDER_FLOAT, __VA_ARGS__)
#define THUNDER_BINARY(name, condition, ...)                                      \
  template <> struct Binary<TileOp::name> {                                       \
    template <typename T> static constexpr bool kDefined = condition;             \
    template <typename T> static inline auto apply(T x, T y) { __VA_ARGS__; }     \
  };
#define THUNDER_TERNARY(name, ...)                                                \
  template <> struct Ternary<TileOp::name> {                                      \
    static inline float apply(float x, float y, float z) { __VA_ARGS__; }         \
  };
// clang-format on
#define THUNDER_REAL kIsReal<T>
#define THUNDER_FLOAT std::is_same_v<T, float>
#define THUNDER_INT std::is_same_v<T, Integer>
#define THUNDER_BOOL std::is_same_v<T, Bool>
#define THUNDER_NUMBER (kIsReal<T> || THUNDER_INT)

template <typename T>
inline T square_root(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_sqrtf(x);
  return __builtin_sqrt(x);
}
template <typename T>
inline T wrapped_add(T x, T y) {
  if constexpr (std::is_same_v<T, Integer>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y));
  }
  return x + y;
}
template <typename T>
inline T wrapped_subtract(T x, T y) {
  if constexpr (std::is_same_v<T, Integer>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y));
  }
  return x - y;
}
template <typename T>
inline T wrapped_multiply(T x, T y) {
  if constexpr (std::is_same_v<T, Integer>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
  }
  return x * y;
}

inline std::uint16_t to_bfloat16(float x) {
  const auto bits = static_cast<std::uint32_t>(bits_of(x));
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}
inline float of_bfloat16(std::uint16_t x) { return of_bits(static_cast<std::int32_t>(std::uint32_t{x} << 16)); }

THUNDER_UNARY(kCopy, true, return x)
THUNDER_UNARY(kNegate, THUNDER_NUMBER, if constexpr (THUNDER_INT) return wrapped_subtract(T{0}, x); else return -x)
THUNDER_UNARY(kAbs, THUNDER_NUMBER, if constexpr (THUNDER_INT) return x < 0 ? wrapped_subtract(T{0}, x) : x;
              else if constexpr (THUNDER_FLOAT) return __builtin_fabsf(x); else return __builtin_fabs(x))
THUNDER_UNARY(kSign, THUNDER_NUMBER, return static_cast<T>((T{0} < x) - (x < T{0})))
THUNDER_UNARY(kSquare, THUNDER_NUMBER, return wrapped_multiply(x, x))
THUNDER_UNARY(kReciprocal, THUNDER_REAL, return T{1} / x)
THUNDER_UNARY(kSqrt, THUNDER_REAL, return square_root(x))
THUNDER_UNARY(kRsqrt, THUNDER_REAL, return T{1} / square_root(x))
THUNDER_FUNCTION(kExp, return exp_of(x))
THUNDER_FUNCTION(kTanh, return tanh_of(x))
THUNDER_FUNCTION(kErf, return erf_of(x))
THUNDER_FUNCTION(kSigmoid, return sigmoid_of(x))
THUNDER_FUNCTION(kNormalCdf, return normal_cdf_of(x))
THUNDER_FUNCTION(kTailOfGelu, return gelu_tail_of(x))
THUNDER_UNARY(kRelu, THUNDER_NUMBER, return x < T{0} ? T{0} : x)
THUNDER_UNARY(kFloor, THUNDER_FLOAT, return __builtin_floorf(x))
THUNDER_UNARY(kCeil, THUNDER_FLOAT, return __builtin_ceilf(x))
THUNDER_UNARY(kTrunc, THUNDER_FLOAT, return __builtin_truncf(x))
THUNDER_UNARY(kRound, THUNDER_FLOAT, return __builtin_nearbyintf(x))
THUNDER_UNARY(kIsNan, THUNDER_REAL, return static_cast<Bool>(x != x))
THUNDER_UNARY(kNot, THUNDER_BOOL, return static_cast<Bool>(x ^ 1U))
THUNDER_UNARY(kToBfloat16, THUNDER_FLOAT, return of_bfloat16(to_bfloat16(x)))
THUNDER_UNARY(kToHalf, THUNDER_FLOAT,
              return c10::detail::fp16_ieee_to_fp32_value(c10::detail::fp16_ieee_from_fp32_value(x)))
THUNDER_UNARY(kToInt8, THUNDER_INT, return T{static_cast<std::int8_t>(x)})
THUNDER_UNARY(kToUint8, THUNDER_INT, return T{static_cast<std::uint8_t>(x)})
THUNDER_UNARY(kToInt16, THUNDER_INT, return T{static_cast<std::int16_t>(x)})
THUNDER_UNARY(kToInt32, THUNDER_INT, return T{static_cast<std::int32_t>(x)})

THUNDER_BINARY(kAdd, THUNDER_NUMBER, return wrapped_add(x, y))
THUNDER_BINARY(kSubtract, THUNDER_NUMBER, return wrapped_subtract(x, y))
THUNDER_BINARY(kMultiply, THUNDER_NUMBER, return wrapped_multiply(x, y))
THUNDER_BINARY(kDivide, THUNDER_REAL, return x / y)
THUNDER_BINARY(kMaximum, THUNDER_NUMBER, return (x >= y || x != x) ? x : y)
THUNDER_BINARY(kMinimum, THUNDER_NUMBER, return (x <= y || x != x) ? x : y)
THUNDER_BINARY(kEqual, true, return static_cast<Bool>(x == y))
THUNDER_BINARY(kNotEqual, true, return static_cast<Bool>(x != y))
THUNDER_BINARY(kLess, true, return static_cast<Bool>(x < y))
THUNDER_BINARY(kLessEqual, true, return static_cast<Bool>(x <= y))
THUNDER_BINARY(kGreater, true, return static_cast<Bool>(x > y))
THUNDER_BINARY(kGreaterEqual, true, return static_cast<Bool>(x >= y))
THUNDER_BINARY(kAnd, (THUNDER_INT || THUNDER_BOOL), return static_cast<T>(x & y))
THUNDER_BINARY(kOr, (THUNDER_INT || THUNDER_BOOL), return static_cast<T>(x | y))
THUNDER_BINARY(kGeluSlope, THUNDER_FLOAT, return gelu_slope(x, y))
THUNDER_BINARY(kGeluOfTail, THUNDER_FLOAT, return x * gelu_weight(x, y))
THUNDER_BINARY(kGeluTanhSlope, THUNDER_FLOAT, return gelu_tanh_slope(x, y))
THUNDER_BINARY(kSiluSlope, THUNDER_FLOAT, return y * (1.0F + x * (1.0F - y)))
THUNDER_BINARY(kSigmoidBackward, THUNDER_REAL, return x * (T{1} - y) * y)
THUNDER_BINARY(kTanhBackward, THUNDER_REAL, return x * (T{1} - y * y))

#define THUNDER_COMPOSITION(name, second, first) \
  THUNDER_FUNCTION(name, return Binary<TileOp::second>::apply<T>(x, Unary<TileOp::first>::apply<T>(x)))
THUNDER_COMPOSITION(kSilu, kMultiply, kSigmoid)
THUNDER_COMPOSITION(kSiluDerivative, kSiluSlope, kSigmoid)
THUNDER_COMPOSITION(kGelu, kMultiply, kNormalCdf)
THUNDER_COMPOSITION(kGeluTanh, kGeluOfTail, kTailOfGelu)
#undef THUNDER_COMPOSITION
THUNDER_FUNCTION(kGeluDerivative, return gelu_derivative_of(x))
THUNDER_FUNCTION(kGeluTanhDerivative, return gelu_tanh_derivative_of(x))

THUNDER_TERNARY(kMultiplyAdd, return x * y + z)
THUNDER_TERNARY(kMultiplySubtract, return x * y - z)
THUNDER_TERNARY(kSubtractProduct, return z - x * y)
THUNDER_TERNARY(kMultiplyMultiply, return x * y * z)
THUNDER_TERNARY(kAddAdd, return x + y + z)
THUNDER_TERNARY(kAddMultiply, return (x + y) * z)
THUNDER_TERNARY(kSubtractMultiply, return (x - y) * z)
