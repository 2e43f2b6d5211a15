#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/argument.h"
#include "ir/operator.h"
#include "operators/element_op.h"

namespace thunder::operators {

/// A node of an expression. Nodes that it reads come before it.
struct ElementNode {
  enum class Kind : std::uint8_t {
    kParameter,  ///< the operator's parameter number `parameter`: an element of a tensor, or a number
    kNumber,     ///< `number`
    kText,       ///< `text`: compared with a parameter that is a string
    kOperation,  ///< `op` of `operands`
    kChoice,     ///< `operands[1] if operands[0] else operands[2]`; the condition is known when the trace is compiled
  };
  Kind kind = Kind::kNumber;
  std::size_t parameter = 0;
  double number = 0;
  std::string text;
  ElementOp op = ElementOp::kAdd;
  std::array<std::uint32_t, 3> operands{};
  std::size_t operand_count = 0;
};

/// One element of an operator's result, as an expression of the operator's parameters. A parameter that a call leaves
/// out (None) leaves out the operation that it is an operand of; so does a factor of one.
struct ElementExpression {
  std::vector<ElementNode> nodes;  ///< the last one is the result

  [[nodiscard]] const ElementNode& root() const { return nodes.back(); }
};

/// Parses `text`, which names the operator's parameters as its schema does:
/// `self + other * alpha`, `where(self > 0, self, self * negative_slope)`, `relu(self) if exponent == 1 else self`.
/// Throws InternalError for text that is no expression.
[[nodiscard]] ElementExpression parse_element_expression(std::string_view text, const ir::Operator& op);

/// The value of a node that is known from the call's arguments alone; a comparison is 0 or 1.
[[nodiscard]] std::optional<double> constant_value(const ElementExpression& expression, std::uint32_t node,
                                                   const ir::ArgumentList& arguments);

/// Builds the expression of a call bottom-up. `Emitter` has a type `Value`, and makes values by `parameter(i)`,
/// `condition(i)` (a bool parameter that chooses), `number(double)` and `apply(ElementOp, std::span<const Value>)`. A
/// node that several others read is built once.
template <typename Emitter>
class ElementBuilder {
 public:
  using Value = typename Emitter::Value;

  ElementBuilder(const ElementExpression& expression, const ir::ArgumentList& arguments, Emitter& emitter)
      : expression_(expression),
        arguments_(arguments),
        emitter_(emitter),
        values_(expression.nodes.size()),
        built_(expression.nodes.size()) {}

  /// nullopt: the call leaves out everything that the result is made of.
  std::optional<Value> build() { return build(static_cast<std::uint32_t>(expression_.nodes.size() - 1)); }

 private:
  std::optional<Value> build(std::uint32_t index) {
    if (!built_[index]) values_[index] = build_new(index);
    built_[index] = true;
    return values_[index];
  }

  std::optional<Value> build_new(std::uint32_t index) {
    const ElementNode& node = expression_.nodes[index];
    switch (node.kind) {
      case ElementNode::Kind::kParameter: {
        const std::size_t i = node.parameter;
        if (i >= arguments_.size() || arguments_[i].template is<ir::None>()) return std::nullopt;
        return emitter_.parameter(i);
      }
      case ElementNode::Kind::kNumber:
        return emitter_.number(node.number);
      case ElementNode::Kind::kText:
        return std::nullopt;
      case ElementNode::Kind::kChoice: {
        const auto condition = constant_value(expression_, node.operands[0], arguments_);
        return build(condition.value_or(0) != 0 ? node.operands[1] : node.operands[2]);
      }
      case ElementNode::Kind::kOperation:
        return build_operation(node);
    }
    return std::nullopt;
  }

  std::optional<Value> build_operation(const ElementNode& node) {
    if (node.op == ElementOp::kMultiply) {
      for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        const auto factor = constant_value(expression_, node.operands[i], arguments_);
        if (factor == 1.0) return build(node.operands[1 - i]);
      }
    }
    std::vector<Value> operands;
    for (std::size_t i = 0; i < node.operand_count; ++i) {
      const ElementNode& operand = expression_.nodes[node.operands[i]];
      const bool is_condition = node.op == ElementOp::kWhere && i == 0 && operand.kind == ElementNode::Kind::kParameter;
      const auto value = is_condition ? emitter_.condition(operand.parameter) : build(node.operands[i]);
      if (value) operands.push_back(*value);
    }
    if (operands.size() == node.operand_count) return emitter_.apply(node.op, operands);
    return operands.empty() ? std::nullopt : std::make_optional(operands.front());
  }

  const ElementExpression& expression_;
  const ir::ArgumentList& arguments_;
  Emitter& emitter_;
  std::vector<std::optional<Value>> values_;
  std::vector<bool> built_;
};

}  // namespace thunder::operators
