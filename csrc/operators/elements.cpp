#include "operators/elements.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace thunder::operators {
namespace {

struct Row {
  std::string_view name;
  std::string_view overloads;  ///< separated by spaces; empty: the one without a name
  ElementDomain domain;
  std::string_view expression;
  double work = 0;
};

using enum ElementDomain;

// One row makes an operator fuse, on every target. Parameters have the names of PyTorch's schema.
// clang-format off
constexpr Row kRows[] = {
    // functions
    {"aten::neg", "", kNumbers, "-self"},
    {"aten::abs", "", kNumbers, "abs(self)"},
    {"aten::sign", "", kNumbers, "sign(self)"},
    {"aten::square", "", kNumbers, "square(self)"},
    {"aten::relu", "", kNumbers, "relu(self)"},
    {"aten::reciprocal", "", kReal, "reciprocal(self)"},
    {"aten::sqrt", "", kReal, "sqrt(self)"},
    {"aten::rsqrt", "", kReal, "rsqrt(self)"},
    {"aten::exp", "", kReal, "exp(self)"},
    {"aten::expm1", "", kReal, "expm1(self)"},
    {"aten::log", "", kReal, "log(self)"},
    {"aten::log1p", "", kReal, "log1p(self)"},
    {"aten::sin", "", kReal, "sin(self)"},
    {"aten::cos", "", kReal, "cos(self)"},
    {"aten::tanh", "", kReal, "tanh(self)"},
    {"aten::erf", "", kReal, "erf(self)"},
    {"aten::sigmoid", "", kReal, "sigmoid(self)"},
    {"aten::silu", "", kReal, "self * sigmoid(self)"},
    {"aten::floor", "", kReal, "floor(self)"},
    {"aten::ceil", "", kReal, "ceil(self)"},
    {"aten::trunc", "", kReal, "trunc(self)"},
    {"aten::round", "", kReal, "round(self)"},
    {"aten::gelu", "", kReal,
     "gelu_of_tail(self, tanh_tail(self)) if approximate == 'tanh' else self * normal_cdf(self)"},
    {"aten::leaky_relu", "", kReal, "where(self > 0, self, self * negative_slope)"},
    {"aten::hardtanh", "", kNumbers, "minimum(maximum(self, min_val), max_val)"},
    {"aten::hardsigmoid", "", kReal, "minimum(maximum(self + 3, 0), 6) / 6"},
    {"aten::hardswish", "", kReal, "self * minimum(maximum(self + 3, 0), 6) / 6"},
    {"aten::softplus", "", kReal,
     "where(self * beta > threshold, self, log1p(exp(self * beta)) / beta)"},
    {"aten::elu", "", kReal, "where(self > 0, self * scale, expm1(self * input_scale) * (alpha * scale))"},
    {"aten::celu", "", kReal, "where(self > 0, self, expm1(self * (1 / alpha)) * alpha)"},
    {"aten::mish", "", kReal, "self * tanh(log1p(exp(self)))"},
    {"aten::frac", "", kReal, "self - trunc(self)"},
    {"aten::pow", "Tensor_Scalar", kFloats,
     "square(self) if exponent == 2 else square(self) * self if exponent == 3 else "
     "sqrt(self) if exponent == 0.5 else rsqrt(self) if exponent == -0.5 else "
     "reciprocal(self) if exponent == -1 else reciprocal(square(self)) if exponent == -2 else "
     "self if exponent == 1 else power(self, exponent)", 1},

    // their derivatives
    {"aten::gelu_backward", "", kReal,
     "grad_output * gelu_tanh_slope(self, tanh_tail(self)) if approximate == 'tanh' else "
     "grad_output * gelu_slope(self, normal_cdf(self))"},
    {"aten::silu_backward", "", kReal, "grad_output * silu_slope(self, sigmoid(self))"},
    {"aten::sigmoid_backward", "", kReal, "sigmoid_backward(grad_output, output)"},
    {"aten::tanh_backward", "", kReal, "tanh_backward(grad_output, output)"},
    {"aten::leaky_relu_backward", "", kReal, "where(self > 0, grad_output, grad_output * negative_slope)"},
    {"aten::hardtanh_backward", "", kReal,
     "where(or(self <= min_val, self >= max_val), 0, grad_output)"},
    {"aten::hardsigmoid_backward", "", kReal,
     "where(and(self > -3, self < 3), grad_output * 0.16666666666666666, 0)"},
    {"aten::softplus_backward", "", kReal,
     "where(self * beta > threshold, grad_output, grad_output * exp(self * beta) / (exp(self * beta) + 1))"},
    {"aten::elu_backward", "", kReal,
     "where(self_or_result > 0, grad_output * scale, grad_output * input_scale * (self_or_result + alpha * scale)) "
     "if is_result else where(self_or_result > 0, grad_output * scale, "
     "grad_output * input_scale * (alpha * scale) * exp(self_or_result * input_scale))"},
    {"aten::mish_backward", "", kReal,
     "grad_output * (tanh(log1p(exp(self))) + "
     "self * sigmoid(self) * (1 - tanh(log1p(exp(self))) * tanh(log1p(exp(self)))))"},
    {"aten::threshold_backward", "", kNumbers, "where(self <= threshold, 0, grad_output)"},

    // arithmetic
    {"aten::add", "Tensor Scalar", kNumbers, "self + other * alpha"},
    {"aten::sub", "Tensor Scalar", kNumbers, "self - other * alpha"},
    {"aten::rsub", "Tensor Scalar", kNumbers, "other - self * alpha"},
    {"aten::mul", "Tensor Scalar", kNumbers, "self * other"},
    {"aten::div", "Tensor Scalar", kReal, "self / other"},
    // PyTorch gives the second of two zeros of different signs, but `self` where the other one bounds it.
    {"aten::maximum", "", kNumbers, "maximum(other, self)"},
    {"aten::minimum", "", kNumbers, "minimum(other, self)"},
    {"aten::clamp", "", kNumbers, "minimum(maximum(self, min), max)"},
    {"aten::clamp_min", "", kNumbers, "maximum(self, min)"},
    {"aten::clamp_max", "", kNumbers, "minimum(self, max)"},
    {"aten::addcmul", "", kReal, "self + tensor1 * value * tensor2", 2},
    {"aten::addcdiv", "", kReal, "self + tensor1 * value / tensor2", 2},
    {"aten::lerp", "Scalar", kReal,
     "self + weight * (end - self) if abs(weight) < 0.5 else end - (1 - weight) * (end - self)", 2},
    {"aten::lerp", "Tensor", kReal,
     "where(abs(weight) < 0.5, self + weight * (end - self), end - (1 - weight) * (end - self))", 2},

    // comparisons, logic, selection
    {"aten::eq", "Tensor Scalar", kComparison, "self == other"},
    {"aten::ne", "Tensor Scalar", kComparison, "self != other"},
    {"aten::lt", "Tensor Scalar", kComparison, "self < other"},
    {"aten::le", "Tensor Scalar", kComparison, "self <= other"},
    {"aten::gt", "Tensor Scalar", kComparison, "self > other"},
    {"aten::ge", "Tensor Scalar", kComparison, "self >= other"},
    {"aten::logical_not", "", kBools, "not(self)"},
    {"aten::bitwise_not", "", kBools, "not(self)"},
    {"aten::logical_and", "", kBools, "and(self, other)"},
    {"aten::logical_or", "", kBools, "or(self, other)"},
    {"aten::bitwise_and", "Tensor", kBools, "and(self, other)"},
    {"aten::bitwise_or", "Tensor", kBools, "or(self, other)"},
    {"aten::__and__", "Tensor", kBools, "and(self, other)"},
    {"aten::__or__", "Tensor", kBools, "or(self, other)"},
    {"aten::where", "self ScalarOther ScalarSelf", kSelection, "where(condition, self, other)"},
    {"aten::masked_fill", "Scalar Tensor", kSelection, "where(mask, value, self)"},

    {"aten::native_dropout_backward", "", kReal, "grad_output * mask * scale"},

    // copies, constants, views
    {"aten::_to_copy", "", kCast, "self"},
    {"aten::to", "dtype", kCast, "self"},
    {"aten::expand", "", kExpansion, "self"},
    {"aten::expand_copy", "", kCopy, "self"},
    {"aten::empty_like", "", kExpansion, "0"},
    {"aten::zeros_like", "", kExpansion, "0"},
    {"aten::ones_like", "", kExpansion, "1"},
    {"aten::fill", "Scalar", kExpansion, "value"},
    {"aten::full_like", "", kExpansion, "fill_value"},
    {"aten::view", "", kView, "self"},
    {"aten::reshape", "", kView, "self"},
    {"aten::_unsafe_view", "", kView, "self"},
    {"aten::unsqueeze", "", kView, "self"},
    {"aten::squeeze", "_ dim dims", kView, "self"},
    {"aten::alias", "", kView, "self"},
    {"aten::detach", "", kView, "self"},
};
// clang-format on

/// Whether `overload` is one of those of a row; `_` stands for the one without a name beside others.
bool has_overload(const Row& row, std::string_view overload) {
  if (row.overloads.empty()) return overload.empty();
  const std::string_view wanted = overload.empty() ? "_" : overload;
  std::string_view rest = row.overloads;
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, space) == wanted) return true;
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return false;
}

const Row* find_row(const ir::Operator& op) {
  static const auto kByName = [] {
    std::unordered_multimap<std::string_view, const Row*> rows;
    for (const Row& row : kRows) rows.emplace(row.name, &row);
    return rows;
  }();
  const auto [first, end] = kByName.equal_range(op.name);
  const auto found =
      std::find_if(first, end, [&](const auto& entry) { return has_overload(*entry.second, op.overload); });
  return found == end ? nullptr : found->second;
}

/// Counts the operations of a call.
struct WorkCounter {
  using Value = int;
  bool is_transcendental = false;

  Value parameter(std::size_t) { return 0; }
  Value condition(std::size_t) { return 0; }
  Value number(double) { return 0; }
  Value apply(ElementOp op, std::span<const Value>) {
    is_transcendental = is_transcendental || operators::is_transcendental(op);
    return 0;
  }
};

}  // namespace

const Elements* find_elements(const ir::Operator& op) {
  static auto* const kParsed = new std::unordered_map<std::string, std::unique_ptr<const Elements>>;
  static std::mutex mutex;
  const Row* row = find_row(op);
  if (row == nullptr) return nullptr;
  const std::scoped_lock lock(mutex);
  std::unique_ptr<const Elements>& known = (*kParsed)[op.name + "." + op.overload];
  if (known == nullptr) {
    known = std::make_unique<Elements>(Elements{row->domain, parse_element_expression(row->expression, op), row->work});
  }
  return known.get();
}

bool is_elementwise(std::string_view name) {
  return std::ranges::any_of(kRows, [&](const Row& row) { return row.name == name; });
}

double work_of(const Elements& elements, const ir::ArgumentList& arguments) {
  constexpr double kTranscendental = 4;
  if (elements.domain == kExpansion || elements.domain == kView) return 0;
  if (elements.work != 0) return elements.work;
  WorkCounter counter;
  ElementBuilder(elements.expression, arguments, counter).build();
  return counter.is_transcendental ? kTranscendental : 1;
}

}  // namespace thunder::operators
