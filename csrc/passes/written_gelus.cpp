#include "passes/written_gelus.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string_view>

#include "operators/names.h"
#include "passes/layout_cleanup.h"
#include "passes/symbol_facts.h"
#include "passes/value_rewriter.h"

namespace thunder::passes {
namespace {

constexpr double kCubeFactor = 0.044715;

bool is_close(const ir::Argument& argument, double expected) {
  const auto* integer = argument.get<std::int64_t>();
  const auto* number = argument.get<double>();
  if (integer == nullptr && number == nullptr) return false;
  const double value = integer != nullptr ? static_cast<double>(*integer) : *number;
  return std::abs(value - expected) <= 1e-6 * expected;
}

/// Finds how the factors of a multiplication were made.
class Formula {
 public:
  explicit Formula(const ValueRewriter& rewriter) : rewriter_(rewriter) {}

  /// The input where `half * one_more` is a GELU of it; kNoValue: it is none.
  [[nodiscard]] ir::ValueId input(ir::ValueId half, ir::ValueId one_more) const {
    const ir::ValueId halved = factor_beside(half, 0.5);
    const ir::BoundSymbol* sum = maker(plus_one(one_more), "aten::tanh");
    const ir::BoundSymbol* inner =
        sum == nullptr ? nullptr
                       : maker(factor_beside(value_argument(*sum, 0), std::sqrt(2 / std::numbers::pi)), "aten::add");
    if (halved == ir::kNoValue || inner == nullptr || !is_close(inner->arguments[2], 1)) return ir::kNoValue;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const ir::ValueId cubed = base_of_cube(factor_beside(value_argument(*inner, 1 - i), kCubeFactor));
      const bool is_input =
          cubed != ir::kNoValue && is_same(value_argument(*inner, i), cubed) && is_same(halved, cubed);
      if (is_input && rewriter_.is_constant_memory(cubed)) return cubed;
    }
    return ir::kNoValue;
  }

 private:
  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id, std::string_view name) const {
    const ir::BoundSymbol* symbol = id == ir::kNoValue ? nullptr : rewriter_.maker(id);
    return symbol != nullptr && symbol->op->name == name ? symbol : nullptr;
  }

  /// The value that was multiplied by a number.
  [[nodiscard]] ir::ValueId factor_beside(ir::ValueId id, double number) const {
    const ir::BoundSymbol* scaled = maker(id, operators::kMul);
    return scaled != nullptr && is_close(scaled->arguments[1], number) ? value_argument(*scaled, 0) : ir::kNoValue;
  }

  /// The value that 1 was added to.
  [[nodiscard]] ir::ValueId plus_one(ir::ValueId id) const {
    const ir::BoundSymbol* sum = maker(id, "aten::add");
    const bool is_plus_one = sum != nullptr && is_close(sum->arguments[1], 1) && is_close(sum->arguments[2], 1);
    return is_plus_one ? value_argument(*sum, 0) : ir::kNoValue;
  }

  [[nodiscard]] ir::ValueId base_of_cube(ir::ValueId id) const {
    const ir::BoundSymbol* power = maker(id, "aten::pow");
    const bool is_cube = power != nullptr && power->op->overload == "Tensor_Scalar" && is_close(power->arguments[1], 3);
    return is_cube ? value_argument(*power, 0) : ir::kNoValue;
  }

  /// Whether `wide` is the value, or all of its bits in a wider dtype: autocast takes powers in float32.
  [[nodiscard]] bool is_same(ir::ValueId id, ir::ValueId wide) const {
    if (id == ir::kNoValue || id == wide) return id != ir::kNoValue;
    const ir::BoundSymbol* cast = rewriter_.maker(wide);
    const bool is_cast = cast != nullptr && (cast->op->name == operators::kCast || cast->op->name == "aten::to") &&
                         value_argument(*cast, 0) == id && rewriter_.type(id) != nullptr;
    return is_cast && cast_is_exact(rewriter_.type(id)->dtype, rewriter_.type(wide)->dtype);
  }

  const ValueRewriter& rewriter_;
};

ir::ValueId recognize(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::ValueId left = value_argument(symbol, 0);
  const ir::ValueId right = value_argument(symbol, 1);
  if (left == ir::kNoValue || right == ir::kNoValue) return ir::kNoValue;
  const Formula formula(rewriter);
  ir::ValueId input = formula.input(left, right);
  if (input == ir::kNoValue) input = formula.input(right, left);
  const ir::TensorType* type = rewriter.type(input);
  const ir::TensorType* result = rewriter.type(single_result(symbol));
  if (!is_float(type) || result == nullptr || !same_layout(*type, *result)) return ir::kNoValue;
  symbol.op = rewriter.find_operator("aten::gelu", "");
  symbol.arguments = {ir::Argument(input), ir::Argument(std::string("tanh"))};
  symbol.nested.clear();
  return ir::kNoValue;
}

}  // namespace

ir::Trace recognize_gelus(const ir::Trace& trace, FindOperator find_operator) {
  return ValueRewriter(trace, kWrittenGelus, find_operator).run([](const ir::Operator& op) -> ValueRewriter::Rule {
    return op.name == operators::kMul && op.overload == "Tensor" ? &recognize : nullptr;
  });
}

}  // namespace thunder::passes
