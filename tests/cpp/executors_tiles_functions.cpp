#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "executors/tiles/kernels.h"

namespace thunder::executors::cpu {
namespace {

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double normal_cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double gelu_argument(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
double gelu_tanh_weight(double x) { return 1 / (1 + std::exp(-2 * gelu_argument(x))); }
double gelu_tanh_derivative(double x) {
  const double weight = gelu_tanh_weight(x);
  return weight + x * weight * (1 - weight) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

struct Function {
  TileOp op;
  double (*exact)(double);
  double units;     ///< error allowed, in units of the exact value's last place
  double absolute;  ///< and besides, as a number
};
const Function kFunctions[] = {
    {TileOp::kExp, [](double x) { return std::exp(x); }, 1.1, 0},
    {TileOp::kTanh, [](double x) { return std::tanh(x); }, 2, 0},
    {TileOp::kErf, [](double x) { return std::erf(x); }, 2, 0},
    {TileOp::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2, 0},
    {TileOp::kNormalCdf, &normal_cdf, 6, 1e-10},
    {TileOp::kGelu, [](double x) { return x * normal_cdf(x); }, 6, 1e-9},
    {TileOp::kGeluDerivative, [](double x) { return normal_cdf(x) + x * density(x); }, 1, 6e-8},
    {TileOp::kGeluTanh, [](double x) { return x * gelu_tanh_weight(x); }, 10, 1e-9},
    {TileOp::kGeluTanhDerivative, &gelu_tanh_derivative, 1, 6e-8},
};

double unit_of(double exact) {
  const int exponent = std::max(std::ilogb(exact == 0 ? 1e-300 : exact), -126);
  return std::ldexp(1.0, exponent - 23);
}

std::vector<float> places() {
  std::vector<float> x;
  for (int i = -40'000; i <= 40'000; ++i) x.push_back(static_cast<float>(i) * 0.000251F);
  for (float tiny = 1; tiny > 0; tiny *= 0.37F) x.insert(x.end(), {tiny, -tiny});
  for (float large = 10; large < 88; large *= 1.07F) x.insert(x.end(), {large, -large});
  return x;
}

void check_functions(const Kernels& kernels) {
  const std::vector<float> x = places();
  std::vector<float> y(x.size());
  for (const Function& function : kFunctions) {
    kernels.element(function.op, ComputeType::kFloat, 0)(y.data(), x.data(), nullptr, nullptr,
                                                         static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = function.exact(x[i]);
      const double error = std::max(std::abs(y[i] - exact) - function.absolute, 0.0);
      worst = std::max(worst, error / unit_of(exact) / function.units);
    }
    CHECK(worst <= 1);
  }
}

}  // namespace

TEST(functions_of_floats_are_as_exact_as_they_say) {
  check_functions(kernels());
  check_functions(capability_default::kKernels);
}

TEST(a_function_does_not_depend_on_where_an_element_stands) {
  const std::vector<float> x = places();
  for (const Function& function : kFunctions) {
    const ElementKernel kernel = kernels().element(function.op, ComputeType::kFloat, 0);
    std::vector<float> all(x.size());
    kernel(all.data(), x.data(), nullptr, nullptr, static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); i += 997) {
      float alone = 0;
      kernel(&alone, &x[i], nullptr, nullptr, 1);
      CHECK_EQ(alone, all[i]);
    }
  }
}

TEST(functions_of_infinities_and_of_what_is_no_number) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), -0.0F};
  float y[4];
  const auto apply = [&](TileOp op) { kernels().element(op, ComputeType::kFloat, 0)(y, x, nullptr, nullptr, 4); };
  for (const Function& function : kFunctions) {
    apply(function.op);
    CHECK(std::isnan(y[2]));
  }
  apply(TileOp::kTanh);
  CHECK(y[0] == 1 && y[1] == -1 && y[3] == 0 && std::signbit(y[3]));
  apply(TileOp::kErf);
  CHECK(y[0] == 1 && y[1] == -1 && y[3] == 0 && std::signbit(y[3]));
  apply(TileOp::kSigmoid);
  CHECK(y[0] == 1 && y[1] >= 0 && y[1] < 1e-38F && y[3] == 0.5F);
  apply(TileOp::kGelu);
  CHECK(y[0] == infinity && std::isnan(y[1]) && y[3] == 0);
  apply(TileOp::kGeluDerivative);
  CHECK(std::isnan(y[0]) && std::isnan(y[1]) && y[3] == 0.5F);
}

}  // namespace thunder::executors::cpu
