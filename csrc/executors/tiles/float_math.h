// Included by each kernels_<capability>.cpp, inside its namespace: functions of a float, which the compiler turns into
// vectors, or of Floats, a vector of the processor's (float_math_avx512.h). Polynomials are minimax fits (Lawson's
// iteration over Chebyshev nodes) of the functions named beside them.

#ifdef __FMA__
inline float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline float fma_of(float a, float b, float c) { return a * b + c; }
#endif
inline float abs_of(float x) { return __builtin_fabsf(x); }
/// A limit for x; what is not a number stays so.
inline float at_most(float limit, float x) { return x > limit ? limit : x; }
inline float at_least(float limit, float x) { return x < limit ? limit : x; }

inline std::int32_t bits_of(float x) { return __builtin_bit_cast(std::int32_t, x); }
inline float of_bits(std::int32_t bits) { return __builtin_bit_cast(float, bits); }

constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to an integer

/// exp(x) = mantissa * 2^n with 0.7 < mantissa < 1.42; n is in the low bits of `shifted`, over those of kShift.
struct SplitExp {
  float mantissa;
  float shifted;
};
inline SplitExp split_exp(float x) {
  const float shifted = fma_of(x, 1.44269504F, kShift);
  const float n = shifted - kShift;
  float r = fma_of(n, -0.693145751953125F, x);
  r = fma_of(n, -1.428606765330187e-06F, r);
  float p = fma_of(1.9907583e-4F, r, 1.393365e-3F);  // (exp(r) - 1 - r) / r^2
  p = fma_of(p, r, 8.333286e-3F);
  p = fma_of(p, r, 4.1666467e-2F);
  p = fma_of(p, r, 0.16666667F);
  p = fma_of(p, r, 0.5F);
  return {fma_of(p, r * r, r) + 1.0F, shifted};
}

/// exp(x) for -104 <= x <= 89.
inline float exp_within(float x) {
  const auto [p, shifted] = split_exp(x);
  const std::int32_t exponent = bits_of(shifted) - bits_of(kShift);
  const std::int32_t half = exponent >> 1;
  return p * of_bits((half + 127) << 23) * of_bits((exponent - half + 127) << 23);
}
/// exp(x) for |x| <= 86, in half the time of `exp_within`.
inline float exp_of_moderate(float x) {
  const auto [p, shifted] = split_exp(x);
  return p * of_bits((bits_of(shifted) << 23) + (127 << 23));  // a product, so that what is not a number stays so
}
/// 1 + exp(x) for -87 <= x <= 89.
inline float one_and_exp(float x) {
  const auto [p, shifted] = split_exp(x);
  const float half = p * of_bits((bits_of(shifted) << 23) + (126 << 23));  // exp(89) has no float, half of it does
  return fma_of(2.0F, half, 1.0F);
}

#ifdef __AVX512F__
#include "executors/tiles/float_math_avx512.h"
#endif

/// exp(x) within 1.1 ulp, denormal results too.
template <typename V>
inline V exp_of(V x) {
  return exp_within(at_least(-104.0F, at_most(89.0F, x)));
}

template <typename V>
inline V sigmoid_of(V x) {
  return 1.0F / one_and_exp(at_least(-87.0F, at_most(89.0F, -x)));
}

inline float tanh_of(float x) {
  const float a = abs_of(x);
  const float s = x * x;
  float p = fma_of(2.0476084e-3F, s, -8.100101e-3F);  // (tanh(x) / x - 1) / x^2, x^2 <= 0.5
  p = fma_of(p, s, 2.1684771e-2F);
  p = fma_of(p, s, -5.394756e-2F);
  p = fma_of(p, s, 0.13333248F);
  p = fma_of(p, s, -0.3333333F);
  const float small = fma_of(p * s, a, a);
  const float large = 1.0F - 2.0F / (exp_of_moderate(at_most(20.0F, 2.0F * a)) + 1.0F);
  return __builtin_copysignf(a < 0.70F ? small : large, x);  // `small` has no sign at -0, so the result takes x's
}

inline float erf_of(float x) {
  const float a = abs_of(x);
  const float s = x * x;
  float p = fma_of(8.36231e-5F, s, -8.141481e-4F);  // erf(x) / x - 1, x^2 <= 0.86
  p = fma_of(p, s, 5.20099e-3F);
  p = fma_of(p, s, -2.6859414e-2F);
  p = fma_of(p, s, 0.112836964F);
  p = fma_of(p, s, -0.37612635F);
  p = fma_of(p, s, 0.12837917F);
  const float small = fma_of(p, x, x);
  const float t = at_most(4.0F, a);                    // erf(4) rounds to 1
  float q = fma_of(-2.1094956e-5F, t, 4.3446146e-4F);  // log(erfc(t)), 0.92 <= t <= 4
  q = fma_of(q, t, -4.1710583e-3F);
  q = fma_of(q, t, 2.5119416e-2F);
  q = fma_of(q, t, -0.10828007F);
  q = fma_of(q, t, -0.6333469F);
  q = fma_of(q, t, -1.1295149F);
  q = fma_of(q, t, 1.7468312e-4F);
  const float large = __builtin_copysignf(1.0F - exp_of_moderate(q), x);
  return a >= 0.925F ? large : small;
}

/// exp(-x^2 / 2); 0 from |x| = 13 on.
inline float gaussian_of(float x) {
  const float s = 0.5F * x * x;
  const float e = exp_of_moderate(-at_most(84.0F, s));
  return s > 84.0F ? 0.0F : e;
}

/// The distribution function of the normal distribution: exact to its last bits where it is small, too.
inline float normal_cdf_of(float x) {
  const float t = at_most(13.0F, abs_of(x));
  float p = fma_of(3.9943418e-3F, t, 3.9808703e-2F);  // p / q = cdf(-t) * exp(t^2 / 2)
  p = fma_of(p, t, 0.18078376F);
  p = fma_of(p, t, 0.43497588F);
  p = fma_of(p, t, 0.5F);
  float q = fma_of(1.001218e-2F, t, 9.9793273e-2F);
  q = fma_of(q, t, 0.46300015F);
  q = fma_of(q, t, 1.1923047F);
  q = fma_of(q, t, 1.6678366F);
  q = fma_of(q, t, 1.0F);
  const float tail = gaussian_of(x) * (p / q);
  return x < 0.0F ? tail : 1.0F - tail;
}

/// (1 - tanh|y|) / 2 of gelu's approximation: the smaller one of its two weights, so that both keep their digits.
inline float gelu_tail_of(float x) { return sigmoid_of(-1.595769122F * abs_of(x + 0.044715F * (x * x * x))); }

/// The derivatives of gelu(x), of x and of the distribution function or the tail there.
inline float gelu_slope(float x, float cdf) { return cdf + x * (0.398942280F * gaussian_of(x)); }
template <typename V>
inline V gelu_weight(V x, V tail) {
  return x < 0.0F ? tail : 1.0F - tail;
}
inline float gelu_tanh_slope(float x, float tail) {
  const float inner = 1.595769122F * (1.0F + 0.134145F * (x * x));
  return gelu_weight(x, tail) + x * (tail * (1.0F - tail)) * inner;
}
inline float gelu_derivative_of(float x) { return gelu_slope(x, normal_cdf_of(x)); }
inline float gelu_tanh_derivative_of(float x) { return gelu_tanh_slope(x, gelu_tail_of(x)); }
