// Tables of polynomials, made by the compiler: functions for which the processor has neither instructions nor a short
// polynomial.
#pragma once

#include <array>
#include <cstddef>

namespace thunder::executors::cpu {

/// A function of t >= 0 by its values around multiples of `step`: piece i holds for t within half a step of i * step,
/// and the last one for all that comes after it. Coefficient k of piece i, of the distance from i * step, is
/// coefficients[k][i].
inline constexpr std::size_t kPieces = 32;
template <std::size_t kDegree>
struct Piecewise {
  double step;
  alignas(64) std::array<std::array<float, kPieces>, kDegree + 1> coefficients;
  alignas(64) std::array<float, kPieces> low;  ///< rounding error of coefficient 0

  /// Where the last piece has its middle.
  [[nodiscard]] constexpr double last() const { return step * (kPieces - 1); }
};

constexpr double exact_exp(double x) {
  double sum = 1;
  double term = 1;
  for (int k = 1; k <= 8; ++k) sum += term *= x / 1024 / k;
  for (int k = 0; k < 10; ++k) sum *= sum;
  return sum;
}
constexpr double exact_cos(double x) {
  double sum = 1;
  double term = 1;
  for (int k = 2; k <= 30; k += 2) sum += term *= -x * x / k / (k - 1);
  return sum;
}

/// Interpolates `function` at Chebyshev's nodes of each piece.
template <std::size_t kDegree, typename Function>
constexpr Piecewise<kDegree> piecewise(double step, const Function& function) {
  constexpr std::size_t kCount = kDegree + 1;
  Piecewise<kDegree> table{step, {}, {}};
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    const double middle = step * static_cast<double>(piece);
    std::array<double, kCount> places{};
    std::array<double, kCount> differences{};
    for (std::size_t k = 0; k < kCount; ++k) {
      places[k] = exact_cos(3.1415926535897932 * (2.0 * static_cast<double>(k) + 1) / (2 * kCount)) * step / 2;
      differences[k] = function(middle + places[k]);
    }
    for (std::size_t order = 1; order < kCount; ++order) {
      for (std::size_t k = kCount; k-- > order;) {
        differences[k] = (differences[k] - differences[k - 1]) / (places[k] - places[k - order]);
      }
    }
    std::array<double, kCount> polynomial{};
    for (std::size_t k = kCount; k-- > 0;) {
      for (std::size_t i = kCount; i-- > 1;) polynomial[i] = polynomial[i - 1] - places[k] * polynomial[i];
      polynomial[0] = differences[k] - places[k] * polynomial[0];
    }
    polynomial[0] = function(middle);
    for (std::size_t k = 0; k < kCount; ++k) table.coefficients[k][piece] = static_cast<float>(polynomial[k]);
    table.low[piece] = static_cast<float>(polynomial[0] - static_cast<double>(table.coefficients[0][piece]));
  }
  return table;
}

/// The density of the normal distribution, and its distribution function at -t.
constexpr double exact_density(double t) { return 0.39894228040143268 * exact_exp(-t * t / 2); }
constexpr double exact_tail(double t) {
  double sum = 0;
  double term = t;
  for (int k = 1; k < 140; k += 2) {
    sum += term;
    term *= t * t / (k + 2);
  }
  return 0.5 - exact_density(t) * sum;
}
constexpr double exact_sigmoid(double x) { return 1 / (1 + exact_exp(-x)); }

inline constexpr auto kTanhTable = piecewise<6>(0.3125, [](double t) { return 2 * exact_sigmoid(2 * t) - 1; });
inline constexpr auto kErfTable =
    piecewise<6>(0.140625, [](double t) { return 1 - 2 * exact_tail(1.4142135623730950 * t); });

/// 2^(i / 16), and what rounding it to a float leaves.
struct PowersOfTwo {
  alignas(64) std::array<float, 16> high;
  alignas(64) std::array<float, 16> low;
};
constexpr PowersOfTwo powers_of_two() {
  PowersOfTwo powers{};
  for (std::size_t i = 0; i < 16; ++i) {
    const double power = exact_exp(0.043321698784996581 * static_cast<double>(i));
    powers.high[i] = static_cast<float>(power);
    powers.low[i] = static_cast<float>(power - static_cast<double>(powers.high[i]));
  }
  return powers;
}
inline constexpr PowersOfTwo kPowersOfTwo = powers_of_two();

// Tables of functions that give gelu(-t) and its derivative there, exact or with tanh; below 3e-11 from t = 6.6 on.
inline constexpr double kTailStep = 0.21875;
template <typename Function>
constexpr auto tail_table(const Function& function) {
  return piecewise<5>(kTailStep, [&](double t) { return t < 30.5 * kTailStep ? function(t) : 0.0; });
}
constexpr double exact_tanh_tail(double t) { return exact_sigmoid(-1.5957691216057308 * (t + 0.044715 * t * t * t)); }
inline constexpr auto kTailTable = tail_table(&exact_tail);
inline constexpr auto kGeluDerivativeTable = tail_table([](double t) { return exact_tail(t) - t * exact_density(t); });
inline constexpr auto kTanhTailTable = tail_table(&exact_tanh_tail);
inline constexpr auto kGeluTanhDerivativeTable = tail_table([](double t) {
  const double tail = exact_tanh_tail(t);
  return tail - t * tail * (1 - tail) * 1.5957691216057308 * (1 + 0.134145 * t * t);
});

}  // namespace thunder::executors::cpu
