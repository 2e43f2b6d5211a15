// Included by float_math.h: what AVX-512 has instructions for. A power of two is multiplied in one step, and one or two
// vectors hold a table, so that an exponential takes half of the operations that a float's takes, and what has a table
// (piecewise.h) a third.

using Floats = __m512;

inline Floats floats(float x) { return _mm512_set1_ps(x); }
inline Floats floats(Floats x) { return x; }
template <typename A, typename B, typename C>
  requires(std::is_same_v<A, Floats> || std::is_same_v<B, Floats> || std::is_same_v<C, Floats>)
inline Floats fma_of(A a, B b, C c) {
  return _mm512_fmadd_ps(floats(a), floats(b), floats(c));
}
inline Floats abs_of(Floats x) { return _mm512_abs_ps(x); }
// These instructions give their second argument where one is not a number.
inline Floats at_most(float limit, Floats x) { return _mm512_min_ps(floats(limit), x); }
inline Floats at_least(float limit, Floats x) { return _mm512_max_ps(floats(limit), x); }

/// exp(x) = mantissa * 2^floor(exponent): 2^(j / 16) from a table, and exp(r) with |r| <= log(2) / 32.
struct SplitExps {
  Floats mantissa;
  Floats exponent;
};
inline SplitExps split_exp(Floats x) {
  const Floats shifted = fma_of(x, 16.0F * 1.44269504F, floats(kShift));
  const Floats n = shifted - kShift;
  Floats r = fma_of(n, -0.693145751953125F / 16.0F, x);
  r = fma_of(n, -1.428606765330187e-06F / 16.0F, r);
  const Floats q = fma_of(fma_of(0.16666667F, r, 0.5F), r * r, r);  // exp(r) - 1
  const auto of_power = [&](const std::array<float, 16>& table) {
    return _mm512_permutexvar_ps(_mm512_castps_si512(shifted), _mm512_load_ps(table.data()));
  };
  const Floats power = of_power(kPowersOfTwo.high);
  return {power + fma_of(power, q, of_power(kPowersOfTwo.low)), n * 0.0625F};
}

inline Floats exp_within(Floats x) {
  const auto [mantissa, exponent] = split_exp(x);
  return _mm512_scalef_ps(mantissa, exponent);
}
inline Floats exp_of_moderate(Floats x) { return exp_within(x); }
inline Floats one_and_exp(Floats x) { return exp_within(x) + 1.0F; }

/// The piece that |x| is in, and how far it is from its middle.
struct Place {
  __m512i piece;
  Floats distance;
};
template <std::size_t kDegree>
inline Place place_of(const Piecewise<kDegree>& table, Floats x) {
  const Floats t = at_most(static_cast<float>(table.last()), abs_of(x));
  const Floats shifted = fma_of(t, static_cast<float>(1 / table.step), floats(kShift));
  return {_mm512_castps_si512(shifted), fma_of(shifted - kShift, static_cast<float>(-table.step), t)};
}
inline Floats number_of(const std::array<float, kPieces>& numbers, const Place& place) {
  return _mm512_permutex2var_ps(_mm512_load_ps(numbers.data()), place.piece, _mm512_load_ps(numbers.data() + 16));
}
/// The factor of the distance in the polynomial of a piece.
template <std::size_t kDegree>
inline Floats slope_of(const Piecewise<kDegree>& table, const Place& place) {
  Floats slope = number_of(table.coefficients.back(), place);
  for (std::size_t k = kDegree; k-- > 1;) {
    slope = fma_of(slope, place.distance, number_of(table.coefficients[k], place));
  }
  return slope;
}

template <std::size_t kDegree>
inline Floats odd_value_of(const Piecewise<kDegree>& table, Floats x) {
  const Place place = place_of(table, x);
  const Floats rest = fma_of(slope_of(table, place), place.distance, number_of(table.low, place));
  return _mm512_or_ps(number_of(table.coefficients[0], place) + rest, _mm512_and_ps(floats(-0.0F), x));
}
template <std::size_t kDegree>
inline Floats tail_of(const Piecewise<kDegree>& table, Floats x) {
  const Place place = place_of(table, x);
  return fma_of(slope_of(table, place), place.distance, number_of(table.coefficients[0], place));
}
/// The value at x of a function whose values at x and -x add up to 1.
template <std::size_t kDegree>
inline Floats complement_of(const Piecewise<kDegree>& table, Floats x) {
  const Floats tail = tail_of(table, x);
  return x < 0.0F ? tail : 1.0F - tail;
}

inline Floats tanh_of(Floats x) { return odd_value_of(kTanhTable, x); }
inline Floats erf_of(Floats x) { return odd_value_of(kErfTable, x); }
inline Floats normal_cdf_of(Floats x) { return complement_of(kTailTable, x); }
inline Floats gelu_tail_of(Floats x) { return tail_of(kTanhTailTable, x); }
// Infinity times zero, as in the other forms, is not a number.
inline Floats gelu_derivative_of(Floats x) { return fma_of(x, 0.0F, complement_of(kGeluDerivativeTable, x)); }
inline Floats gelu_tanh_derivative_of(Floats x) { return fma_of(x, 0.0F, complement_of(kGeluTanhDerivativeTable, x)); }
