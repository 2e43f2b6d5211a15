// The kernels, included by each kernels_<capability>.cpp inside its own namespace and compiled for its processor: plain
// loops, which the compiler vectorizes, and PyTorch's vectors for functions that it has better ones for.

namespace {

#include "executors/tiles/float_math.h"

using Integer = std::int64_t;
using Bool = std::uint8_t;

template <typename T>
constexpr bool kIsReal = std::is_floating_point_v<T>;

/// A function of PyTorch's vectors, applied to an array.
template <typename T, typename Function>
inline void map_vectors(T* out, const T* a, std::int64_t count, const Function& function) {
  using Vector = at::vec::Vectorized<T>;
  std::int64_t i = 0;
  for (; i + Vector::size() <= count; i += Vector::size()) function(Vector::loadu(a + i), i).store(out + i);
  if (i < count) function(Vector::loadu(a + i, count - i), i).store(out + i, static_cast<int>(count - i));
}

// clang-format off
/// Element functions by operation; `kDefined` says for which lanes.
template <TileOp op> struct Unary;
template <TileOp op> struct Binary;
#define THUNDER_UNARY(name, condition, ...)                                       \
  template <> struct Unary<TileOp::name> {                                        \
    template <typename T> static constexpr bool kDefined = condition;             \
    template <typename T> static inline auto apply(T x) { __VA_ARGS__; }          \
  };
#define THUNDER_BINARY(name, condition, ...)                                      \
  template <> struct Binary<TileOp::name> {                                       \
    template <typename T> static constexpr bool kDefined = condition;             \
    template <typename T> static inline auto apply(T x, T y) { __VA_ARGS__; }     \
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
THUNDER_UNARY(kExp, THUNDER_FLOAT, return exp_of(x))
THUNDER_UNARY(kTanh, THUNDER_FLOAT, return tanh_of(x))
THUNDER_UNARY(kErf, THUNDER_FLOAT, return erf_of(x))
THUNDER_UNARY(kSigmoid, THUNDER_FLOAT, return sigmoid_of(x))
THUNDER_UNARY(kNormalCdf, THUNDER_FLOAT, return 0.5F * (1.0F + erf_of(x * 0.707106781F)))
inline float gelu_argument(float x) { return 0.797884561F * (x + 0.044715F * (x * x * x)); }
THUNDER_UNARY(kTanhOfGelu, THUNDER_FLOAT, return tanh_of(gelu_argument(x)))
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
THUNDER_BINARY(kMaximum, THUNDER_NUMBER, return (x > y || x != x) ? x : y)
THUNDER_BINARY(kMinimum, THUNDER_NUMBER, return (x < y || x != x) ? x : y)
THUNDER_BINARY(kEqual, true, return static_cast<Bool>(x == y))
THUNDER_BINARY(kNotEqual, true, return static_cast<Bool>(x != y))
THUNDER_BINARY(kLess, true, return static_cast<Bool>(x < y))
THUNDER_BINARY(kLessEqual, true, return static_cast<Bool>(x <= y))
THUNDER_BINARY(kGreater, true, return static_cast<Bool>(x > y))
THUNDER_BINARY(kGreaterEqual, true, return static_cast<Bool>(x >= y))
THUNDER_BINARY(kAnd, (THUNDER_INT || THUNDER_BOOL), return static_cast<T>(x & y))
THUNDER_BINARY(kOr, (THUNDER_INT || THUNDER_BOOL), return static_cast<T>(x | y))
THUNDER_BINARY(kXor, (THUNDER_INT || THUNDER_BOOL), return static_cast<T>(x ^ y))
THUNDER_BINARY(kGeluSlope, THUNDER_FLOAT, return y + x * (0.398942280F * exp_of(-0.5F * (x * x))))
THUNDER_BINARY(kGeluOfTanh, THUNDER_FLOAT, return 0.5F * x * (1.0F + y))
THUNDER_BINARY(kGeluTanhSlope, THUNDER_FLOAT, const float inner = 0.797884561F * (1.0F + 0.134145F * (x * x));
               return 0.5F * (1.0F + y) + 0.5F * x * (1.0F - y * y) * inner)
THUNDER_BINARY(kSiluSlope, THUNDER_FLOAT, return y * (1.0F + x * (1.0F - y)))
THUNDER_BINARY(kSigmoidBackward, THUNDER_REAL, return x * (T{1} - y) * y)
THUNDER_BINARY(kTanhBackward, THUNDER_REAL, return x * (T{1} - y * y))

template <typename F, typename T>
void unary_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  auto* result = static_cast<decltype(F::template apply<T>(T{}))*>(out);
  const auto* x = static_cast<const T*>(a);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = F::template apply<T>(x[i]);
}

template <typename T>
void fill_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  std::fill_n(static_cast<T*>(out), count, *static_cast<const T*>(a));
}

template <typename F, typename T, bool scalar_a, bool scalar_b>
void binary_loop(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  auto* result = static_cast<decltype(F::template apply<T>(T{}, T{}))*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const T x0 = *x;
  const T y0 = *y;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = F::template apply<T>(scalar_a ? x0 : x[i], scalar_b ? y0 : y[i]);
  }
}

template <typename T, bool scalar_b, bool scalar_c>
void where_loop(void* out, const void* a, const void* b, const void* c, std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* condition = static_cast<const Bool*>(a);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  const T x0 = *x;
  const T y0 = *y;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const T yes = scalar_b ? x0 : x[i];
    const T no = scalar_c ? y0 : y[i];
    result[i] = condition[i] != 0 ? yes : no;
  }
}

template <typename T, bool scalar_b, bool scalar_c>
void multiply_add_loop(void* out, const void* a, const void* b, const void* c, std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const auto* z = static_cast<const T*>(c);
  const T y0 = *y;
  const T z0 = *z;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = x[i] * (scalar_b ? y0 : y[i]) + (scalar_c ? z0 : z[i]);
}

template <typename To, typename From>
void convert_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  auto* result = static_cast<To*>(out);
  const auto* x = static_cast<const From*>(a);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<To, Bool>) {
      result[i] = static_cast<Bool>(x[i] != From{0});
    } else {
      result[i] = static_cast<To>(x[i]);
    }
  }
}

#define THUNDER_VECTOR_FUNCTION(function)                                                        \
  template <typename T>                                                                          \
  void function##_loop(void* out, const void* a, const void*, const void*, std::int64_t count) { \
    map_vectors(static_cast<T*>(out), static_cast<const T*>(a), count,                           \
                [](auto x, std::int64_t) { return x.function(); });                              \
  }
THUNDER_VECTOR_FUNCTION(exp)
THUNDER_VECTOR_FUNCTION(expm1)
THUNDER_VECTOR_FUNCTION(log)
THUNDER_VECTOR_FUNCTION(log1p)
THUNDER_VECTOR_FUNCTION(sin)
THUNDER_VECTOR_FUNCTION(cos)
THUNDER_VECTOR_FUNCTION(tanh)
THUNDER_VECTOR_FUNCTION(erf)
THUNDER_VECTOR_FUNCTION(floor)
THUNDER_VECTOR_FUNCTION(ceil)
THUNDER_VECTOR_FUNCTION(trunc)
THUNDER_VECTOR_FUNCTION(round)

template <typename T, bool scalar_b>
void power_loop(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  using Vector = at::vec::Vectorized<T>;
  const auto* y = static_cast<const T*>(b);
  const Vector y0(*y);
  map_vectors(static_cast<T*>(out), static_cast<const T*>(a), count, [&](Vector x, std::int64_t i) {
    return x.pow(scalar_b ? y0 : Vector::loadu(y + i, std::min<std::int64_t>(Vector::size(), count - i)));
  });
}

/// Calls `function` with a value of the lane's type.
template <typename Function>
ElementKernel for_lane(Lane lane, const Function& function) {
  switch (lane) {
    case Lane::kFloat:
      return function(float{});
    case Lane::kDouble:
      return function(double{});
    case Lane::kInt:
      return function(Integer{});
    case Lane::kBool:
      return function(Bool{});
  }
  return nullptr;
}

template <TileOp op>
ElementKernel find_unary(Lane lane) {
  return for_lane(lane, []<typename T>(T) -> ElementKernel {
    if constexpr (Unary<op>::template kDefined<T>) return &unary_loop<Unary<op>, T>;
    return nullptr;
  });
}

template <TileOp op>
ElementKernel find_binary(Lane lane, unsigned scalars) {
  return for_lane(lane, [&]<typename T>(T) -> ElementKernel {
    if constexpr (Binary<op>::template kDefined<T>) {
      if (scalars == 0) return &binary_loop<Binary<op>, T, false, false>;
      if (scalars == 1) return &binary_loop<Binary<op>, T, true, false>;
      if (scalars == 2) return &binary_loop<Binary<op>, T, false, true>;
    }
    return nullptr;
  });
}

template <typename To>
ElementKernel find_conversion(Lane from) {
  return for_lane(from, []<typename From>(From) -> ElementKernel { return &convert_loop<To, From>; });
}

#define THUNDER_FIND_VECTOR_FUNCTION(function) \
  (lane == Lane::kFloat ? &function##_loop<float> : lane == Lane::kDouble ? &function##_loop<double> : nullptr)

/// Operations that PyTorch's vectors compute; null: another one.
ElementKernel find_vector_function(TileOp op, Lane lane) {
  const bool is_double = lane == Lane::kDouble;
  switch (op) {
    case TileOp::kExpm1:
      return THUNDER_FIND_VECTOR_FUNCTION(expm1);
    case TileOp::kLog:
      return THUNDER_FIND_VECTOR_FUNCTION(log);
    case TileOp::kLog1p:
      return THUNDER_FIND_VECTOR_FUNCTION(log1p);
    case TileOp::kSin:
      return THUNDER_FIND_VECTOR_FUNCTION(sin);
    case TileOp::kCos:
      return THUNDER_FIND_VECTOR_FUNCTION(cos);
    case TileOp::kExp:
      return is_double ? &exp_loop<double> : nullptr;
    case TileOp::kTanh:
      return is_double ? &tanh_loop<double> : nullptr;
    case TileOp::kErf:
      return is_double ? &erf_loop<double> : nullptr;
    case TileOp::kFloor:
      return is_double ? &floor_loop<double> : nullptr;
    case TileOp::kCeil:
      return is_double ? &ceil_loop<double> : nullptr;
    case TileOp::kTrunc:
      return is_double ? &trunc_loop<double> : nullptr;
    case TileOp::kRound:
      return is_double ? &round_loop<double> : nullptr;
    default:
      return nullptr;
  }
}

template <TileOp op>
ElementKernel find_element(Lane lane, unsigned scalars) {
  if constexpr (requires { sizeof(Unary<op>); }) {
    if (scalars == 0) return find_unary<op>(lane);
    if (op == TileOp::kCopy) return for_lane(lane, []<typename T>(T) -> ElementKernel { return &fill_loop<T>; });
  } else if constexpr (requires { sizeof(Binary<op>); }) {
    return find_binary<op>(lane, scalars);
  }
  return nullptr;
}

ElementKernel find_ternary(TileOp op, Lane lane, unsigned scalars) {
  return for_lane(lane, [&]<typename T>(T) -> ElementKernel {
    if (op == TileOp::kWhere) {
      if (scalars == 0) return &where_loop<T, false, false>;
      if (scalars == 2) return &where_loop<T, true, false>;
      if (scalars == 4) return &where_loop<T, false, true>;
      if (scalars == 6) return &where_loop<T, true, true>;
    } else if constexpr (kIsReal<T>) {
      if (scalars == 0) return &multiply_add_loop<T, false, false>;
      if (scalars == 2) return &multiply_add_loop<T, true, false>;
      if (scalars == 4) return &multiply_add_loop<T, false, true>;
      if (scalars == 6) return &multiply_add_loop<T, true, true>;
    }
    return nullptr;
  });
}

ElementKernel element(TileOp op, Lane lane, unsigned scalars) {
  if (scalars == 0) {
    if (const ElementKernel kernel = find_vector_function(op, lane)) return kernel;
  }
  switch (op) {
#define THUNDER_CASE(name) \
  case TileOp::name:       \
    return find_element<TileOp::name>(lane, scalars);
    THUNDER_FORALL_UNARY_TILE_OPS(THUNDER_CASE)
#undef THUNDER_CASE
    case TileOp::kPower:
      if (lane == Lane::kFloat)
        return scalars == 0 ? &power_loop<float, false> : scalars == 2 ? &power_loop<float, true> : nullptr;
      if (lane == Lane::kDouble)
        return scalars == 0 ? &power_loop<double, false> : scalars == 2 ? &power_loop<double, true> : nullptr;
      return nullptr;
    case TileOp::kWhere:
    case TileOp::kMultiplyAdd:
      return find_ternary(op, lane, scalars);
    case TileOp::kConvertToFloat:
      return scalars == 0 ? find_conversion<float>(lane) : nullptr;
    case TileOp::kConvertToDouble:
      return scalars == 0 ? find_conversion<double>(lane) : nullptr;
    case TileOp::kConvertToInt:
      return scalars == 0 ? find_conversion<Integer>(lane) : nullptr;
    case TileOp::kConvertToBool:
      return scalars == 0 ? find_conversion<Bool>(lane) : nullptr;
    default:
      break;
  }
  switch (op) {
#define THUNDER_CASE(name) \
  case TileOp::name:       \
    return find_element<TileOp::name>(lane, scalars);
    THUNDER_FORALL_BINARY_TILE_OPS(THUNDER_CASE)
#undef THUNDER_CASE
    default:
      return nullptr;
  }
}

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

template <typename To, typename From>
inline To converted(From x) {
  if constexpr (std::is_same_v<From, Half>) {
    return c10::detail::fp16_ieee_to_fp32_value(x.bits);
  } else if constexpr (std::is_same_v<From, Bfloat16>) {
    return of_bfloat16(x.bits);
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{c10::detail::fp16_ieee_from_fp32_value(x)};
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return Bfloat16{to_bfloat16(x)};
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void load_loop(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<To*>(to);
  const auto* x = static_cast<const From*>(from);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = converted<To, From>(x[i]);
}
template <typename From, typename To>
void load_strided_loop(void* to, const void* from, std::int64_t stride, std::int64_t count) {
  auto* result = static_cast<To*>(to);
  const auto* x = static_cast<const From*>(from);
  for (std::int64_t i = 0; i < count; ++i) result[i] = converted<To, From>(x[i * stride]);
}

TransferKernel load(Storage from, bool strided) {
  const auto pick = [&](TransferKernel dense, TransferKernel with_stride) { return strided ? with_stride : dense; };
  switch (from) {
    case Storage::kBool:
      return pick(&load_loop<Bool, Bool>, &load_strided_loop<Bool, Bool>);
    case Storage::kUint8:
      return pick(&load_loop<std::uint8_t, Integer>, &load_strided_loop<std::uint8_t, Integer>);
    case Storage::kInt8:
      return pick(&load_loop<std::int8_t, Integer>, &load_strided_loop<std::int8_t, Integer>);
    case Storage::kInt16:
      return pick(&load_loop<std::int16_t, Integer>, &load_strided_loop<std::int16_t, Integer>);
    case Storage::kInt32:
      return pick(&load_loop<std::int32_t, Integer>, &load_strided_loop<std::int32_t, Integer>);
    case Storage::kInt64:
      return pick(&load_loop<Integer, Integer>, &load_strided_loop<Integer, Integer>);
    case Storage::kHalf:
      return pick(&load_loop<Half, float>, &load_strided_loop<Half, float>);
    case Storage::kBfloat16:
      return pick(&load_loop<Bfloat16, float>, &load_strided_loop<Bfloat16, float>);
    case Storage::kFloat:
      return pick(&load_loop<float, float>, &load_strided_loop<float, float>);
    case Storage::kDouble:
      return pick(&load_loop<double, double>, &load_strided_loop<double, double>);
  }
  return nullptr;
}

/// Stores of whole vectors that leave the caches alone; the rest as usual.
template <typename T>
void stream_loop(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<T*>(to);
  const auto* x = static_cast<const T*>(from);
  std::int64_t i = 0;
#ifdef __AVX2__
  constexpr std::int64_t kWidth = 32 / sizeof(T);
  for (; i < count && (reinterpret_cast<std::uintptr_t>(result + i) & 31U) != 0; ++i) result[i] = x[i];
  for (; i + kWidth <= count; i += kWidth) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(result + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)));
  }
#endif
  for (; i < count; ++i) result[i] = x[i];
}

void stream_bfloat16(void* to, const void* from, std::int64_t, std::int64_t count) {
  constexpr std::int64_t kBlock = 512;
  alignas(64) Bfloat16 block[kBlock];
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, count - i);
    load_loop<float, Bfloat16>(block, static_cast<const float*>(from) + i, 1, n);
    stream_loop<Bfloat16>(static_cast<Bfloat16*>(to) + i, block, 1, n);
  }
}

TransferKernel store(Storage to, bool streams) {
  switch (to) {
    case Storage::kBool:
      return &load_loop<Bool, Bool>;
    case Storage::kUint8:
      return &load_loop<Integer, std::uint8_t>;
    case Storage::kInt8:
      return &load_loop<Integer, std::int8_t>;
    case Storage::kInt16:
      return &load_loop<Integer, std::int16_t>;
    case Storage::kInt32:
      return &load_loop<Integer, std::int32_t>;
    case Storage::kInt64:
      return &load_loop<Integer, Integer>;
    case Storage::kHalf:
      return &load_loop<float, Half>;
    case Storage::kBfloat16:
      return streams ? &stream_bfloat16 : &load_loop<float, Bfloat16>;
    case Storage::kFloat:
      return streams ? &stream_loop<float> : &load_loop<float, float>;
    case Storage::kDouble:
      return streams ? &stream_loop<double> : &load_loop<double, double>;
  }
  return nullptr;
}

/// Sums in as many lanes as hide the latency of an addition, so the rounding of a long sum stays small.
template <typename T, typename Function>
inline T sum_of(const T* x, std::int64_t count, const Function& term) {
  constexpr int kLanes = 256 / sizeof(T);
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC ivdep
    for (int k = 0; k < kLanes; ++k) lanes[k] += term(x[i + k]);
  }
  for (int k = 0; i + k < count; ++k) lanes[k] += term(x[i + k]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

template <typename T>
void sum_loop(void* accumulator, const void* values, std::int64_t count) {
  *static_cast<double*>(accumulator) += sum_of(static_cast<const T*>(values), count, [](T x) { return x; });
}

template <typename T, bool is_max>
void extreme_loop(void* accumulator, const void* values, std::int64_t count) {
  constexpr int kLanes = 64;
  const auto* x = static_cast<const T*>(values);
  using Accumulator = std::conditional_t<kIsReal<T>, double, Integer>;
  auto& total = *static_cast<Accumulator*>(accumulator);
  const auto better = [](T a, T b) { return (is_max ? a > b : a < b) || a != a ? a : b; };
  T lanes[kLanes];
  for (T& lane : lanes) lane = static_cast<T>(total);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC ivdep
    for (int k = 0; k < kLanes; ++k) lanes[k] = better(x[i + k], lanes[k]);
  }
  for (int k = 0; i + k < count; ++k) lanes[k] = better(x[i + k], lanes[k]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = better(lanes[k + width], lanes[k]);
  }
  total = lanes[0];
}

void sum_integers(void* accumulator, const void* values, std::int64_t count) {
  auto& total = *static_cast<Integer*>(accumulator);
  const auto* x = static_cast<const Integer*>(values);
  for (std::int64_t i = 0; i < count; ++i) total = wrapped_add(total, x[i]);
}
void sum_bools(void* accumulator, const void* values, std::int64_t count) {
  auto& total = *static_cast<Integer*>(accumulator);
  const auto* x = static_cast<const Bool*>(values);
  for (std::int64_t i = 0; i < count; ++i) total += x[i];
}

ReduceKernel reduce(ReduceOp op, Lane lane) {
  switch (lane) {
    case Lane::kFloat:
      return op == ReduceOp::kSum   ? &sum_loop<float>
             : op == ReduceOp::kMax ? &extreme_loop<float, true>
                                    : &extreme_loop<float, false>;
    case Lane::kDouble:
      return op == ReduceOp::kSum   ? &sum_loop<double>
             : op == ReduceOp::kMax ? &extreme_loop<double, true>
                                    : &extreme_loop<double, false>;
    case Lane::kInt:
      return op == ReduceOp::kSum   ? &sum_integers
             : op == ReduceOp::kMax ? &extreme_loop<Integer, true>
                                    : &extreme_loop<Integer, false>;
    case Lane::kBool:
      return op == ReduceOp::kSum ? &sum_bools : nullptr;
  }
  return nullptr;
}

/// Two passes over what lies in the cache, then Chan's formula for joining it with what came before.
template <typename T>
void moments_loop(double* moments, const void* values, std::int64_t count) {
  const auto* x = static_cast<const T*>(values);
  const double n = static_cast<double>(count);
  const T first = x[0];  // near the mean where all is: nothing is rounded of what is all equal
  const double mean =
      static_cast<double>(first) + static_cast<double>(sum_of(x, count, [first](T v) { return v - first; })) / n;
  const T shift = static_cast<T>(mean);
  const double rest = mean - static_cast<double>(shift);
  const double squares = static_cast<double>(sum_of(x, count, [shift](T v) { return (v - shift) * (v - shift); }));
  const double total = moments[2] + n;
  const double delta = mean - moments[0];
  moments[0] += delta * n / total;
  moments[1] += squares - n * rest * rest + delta * delta * moments[2] * n / total;
  moments[2] = total;
}

MomentsKernel moments(Lane lane) {
  return lane == Lane::kFloat ? &moments_loop<float> : lane == Lane::kDouble ? &moments_loop<double> : nullptr;
}

template <typename T>
void add_loop(void* sums, const void* values, std::int64_t count) {
  auto* total = static_cast<T*>(sums);
  const auto* x = static_cast<const T*>(values);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) total[i] = wrapped_add(total[i], x[i]);
}

void add_to(Lane lane, void* sums, const void* values, std::int64_t count) {
  if (lane == Lane::kFloat) add_loop<float>(sums, values, count);
  if (lane == Lane::kDouble) add_loop<double>(sums, values, count);
  if (lane == Lane::kInt) add_loop<Integer>(sums, values, count);
}

}  // namespace

#include "executors/tiles/depthwise_impl.h"
#include "executors/tiles/twister_impl.h"

const Kernels kKernels{.name = THUNDER_CAPABILITY_NAME,
                       .element = &element,
                       .load = &load,
                       .store = &store,
                       .reduce = &reduce,
                       .moments = &moments,
                       .add_to = &add_to,
                       .twist = &twist,
                       .bernoulli = &bernoulli,
                       .block_width = &block_width,
                       .pack = &pack,
                       .taps = &taps};
