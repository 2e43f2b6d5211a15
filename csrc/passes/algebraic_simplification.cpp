#include <bit>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "passes/pass.h"
#include "passes/symbol_facts.h"
#include "passes/value_rewriter.h"

namespace thunder::passes {

extern const Pass kAlgebraicSimplification;

namespace {

bool is_number(const ir::Argument& argument, double expected) {
  if (const auto* integer = argument.get<std::int64_t>()) return static_cast<double>(*integer) == expected;
  const auto* number = argument.get<double>();
  return number != nullptr && std::bit_cast<std::uint64_t>(*number) == std::bit_cast<std::uint64_t>(expected);
}

/// Argument `i` where the result is a tensor just like it.
ir::ValueId like_result(const ir::BoundSymbol& symbol, const ValueRewriter& rewriter, std::size_t i) {
  const ir::ValueId argument = value_argument(symbol, i);
  if (argument == ir::kNoValue) return ir::kNoValue;
  const ir::TensorType* from = rewriter.type(argument);
  const ir::TensorType* to = rewriter.type(single_result(symbol));
  const bool same = from != nullptr && to != nullptr && same_layout(*from, *to) && !ir::is_complex(to->dtype);
  return same ? argument : ir::kNoValue;
}

ir::ValueId times_one(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  return is_number(symbol.arguments[1], 1.0) ? like_result(symbol, rewriter, 0) : ir::kNoValue;
}

/// `a - alpha * 0`, with an `alpha` that keeps it zero.
ir::ValueId minus_zero(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  if (!is_number(symbol.arguments[1], 0.0) || !is_number(symbol.arguments[2], 1.0)) return ir::kNoValue;
  return like_result(symbol, rewriter, 0);
}

/// `a + alpha * 0` for integers only: -0.0 + 0.0 is 0.0.
ir::ValueId plus_zero(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::TensorType* type = rewriter.type(single_result(symbol));
  if (type == nullptr || ir::is_floating_point(type->dtype)) return ir::kNoValue;
  return minus_zero(symbol, rewriter);
}

/// `f(f(x))` where `f` undoes itself.
ir::ValueId twice(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::ValueId inner = like_result(symbol, rewriter, 0);
  const ir::BoundSymbol* maker = inner == ir::kNoValue ? nullptr : rewriter.maker(inner);
  if (maker == nullptr || maker->op != symbol.op) return ir::kNoValue;
  const ir::ValueId origin = like_result(*maker, rewriter, 0);
  return origin != ir::kNoValue && rewriter.is_constant_memory(origin) ? origin : ir::kNoValue;
}

ir::ValueId same_branches(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  return symbol.arguments[1] == symbol.arguments[2] ? like_result(symbol, rewriter, 1) : ir::kNoValue;
}

ValueRewriter::Rule algebraic_rule(const ir::Operator& op) {
  static const std::unordered_map<std::string_view, ValueRewriter::Rule> kRules = {
      {"aten::mul", &times_one},     {"aten::div", &times_one},     {"aten::sub", &minus_zero},
      {"aten::add", &plus_zero},     {"aten::pow", &times_one},     {"aten::neg", &twice},
      {"aten::bitwise_not", &twice}, {"aten::logical_not", &twice}, {"aten::where", &same_branches},
  };
  const auto found = kRules.find(op.name);
  if (found == kRules.end()) return nullptr;
  // No rule holds for `div.Tensor_mode`, `pow.Scalar`, `where.ScalarSelf` and other overloads.
  static const std::unordered_map<std::string_view, int> kOverloads = {
      {"Tensor", 0}, {"Scalar", 0}, {"Tensor_Scalar", 0}, {"self", 0}, {"", 0}};
  const bool scalar_base = op.name == "aten::pow" && op.overload == "Scalar";
  return kOverloads.contains(op.overload) && !scalar_base ? found->second : nullptr;
}

ir::Trace simplify_algebra(const ir::Trace& trace, FindOperator find_operator) {
  return ValueRewriter(trace, kAlgebraicSimplification.name, find_operator).run(&algebraic_rule);
}

}  // namespace

/// Leaves out arithmetic that gives its argument, bit for bit, whatever it holds (NaN, infinities, -0.0), in the same
/// dtype and shape: `x * 1`, `x / 1`, `x - 0`, `x ** 1`, `-(-x)`, `~~x`, `where(c, x, x)`. Not `x + 0`, which makes 0.0
/// of -0.0, and nothing of complex numbers, whose products mix parts.
constexpr Pass kAlgebraicSimplification{"algebraic_simplification", &simplify_algebra};

}  // namespace thunder::passes
