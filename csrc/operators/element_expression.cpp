#include "operators/element_expression.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace thunder::operators {
namespace {

struct Spelling {
  std::string_view text;
  ElementOp op;
  std::size_t arity;
};
constexpr Spelling kFunctions[] = {
#define THUNDER_SPELLING(name, spelling, arity) {spelling, ElementOp::name, arity},
    THUNDER_FORALL_ELEMENT_FUNCTIONS(THUNDER_SPELLING)};
constexpr Spelling kSymbols[] = {THUNDER_FORALL_ELEMENT_SYMBOLS(THUNDER_SPELLING)
#undef THUNDER_SPELLING
};

/// Recursive descent, weakest operators first: `a if c else b`, comparisons, sums, products, a sign, what is left.
class Parser {
 public:
  Parser(std::string_view text, const ir::Operator& op) : text_(text), op_(op) {}

  ElementExpression parse() {
    choice();
    skip_spaces();
    if (at_ < text_.size()) fail("an operator");
    return std::move(expression_);
  }

 private:
  using Node = std::uint32_t;

  Node choice() {
    const Node yes = comparison();
    if (!take_word("if")) return yes;
    ElementNode node;
    node.kind = ElementNode::Kind::kChoice;
    node.operand_count = 3;
    const Node condition = comparison();
    if (!take_word("else")) fail("'else'");
    node.operands = {condition, yes, choice()};
    return add(std::move(node));
  }
  Node comparison() {
    const Node left = sum();
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(symbol)) return binary(symbol, left, sum());
    }
    return left;
  }
  Node sum() {
    Node left = term();
    while (true) {
      if (take("+")) {
        left = binary("+", left, term());
      } else if (take("-")) {
        left = binary("-", left, term());
      } else {
        return left;
      }
    }
  }
  Node term() {
    Node left = factor();
    while (true) {
      if (take("*")) {
        left = binary("*", left, factor());
      } else if (take("/")) {
        left = binary("/", left, factor());
      } else {
        return left;
      }
    }
  }
  Node factor() {
    if (take("(")) {
      const Node inner = choice();
      close();
      return inner;
    }
    if (take("-")) return operation(ElementOp::kNegate, {factor()}, 1);
    if (take("'")) return quoted();
    if (std::isdigit(static_cast<unsigned char>(peek())) != 0) return number();
    return name();
  }
  Node quoted() {
    ElementNode node;
    node.kind = ElementNode::Kind::kText;
    const std::size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail("a closing quote");
    node.text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return add(std::move(node));
  }
  Node number() {
    ElementNode node;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), node.number);
    if (error != std::errc()) fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    return add(std::move(node));
  }
  Node name() {
    const std::string_view found = word();
    if (found.empty()) fail("a parameter, a number or a function");
    at_ += found.size();
    if (take("(")) return call(found);
    for (std::size_t i = 0; i < op_.parameters.size(); ++i) {
      if (op_.parameters[i].name != found) continue;
      ElementNode node;
      node.kind = ElementNode::Kind::kParameter;
      node.parameter = i;
      return add(std::move(node));
    }
    fail("a parameter instead of " + std::string(found));
  }
  Node call(std::string_view function) {
    for (const Spelling& known : kFunctions) {
      if (known.text != function) continue;
      std::array<Node, 3> operands{};
      for (std::size_t i = 0; i < known.arity; ++i) {
        if (i > 0 && !take(",")) fail("','");
        operands[i] = choice();
      }
      close();
      return operation(known.op, operands, known.arity);
    }
    fail("a function instead of " + std::string(function));
  }

  Node binary(std::string_view symbol, Node left, Node right) {
    for (const Spelling& known : kSymbols) {
      if (known.text == symbol && known.arity == 2) return operation(known.op, {left, right}, 2);
    }
    fail("an operator instead of " + std::string(symbol));
  }
  Node operation(ElementOp op, std::array<Node, 3> operands, std::size_t count) {
    ElementNode node;
    node.kind = ElementNode::Kind::kOperation;
    node.op = op;
    node.operands = operands;
    node.operand_count = count;
    return add(std::move(node));
  }
  /// Equal nodes are one: what an expression names twice is computed once.
  Node add(ElementNode node) {
    for (std::size_t i = 0; i < expression_.nodes.size(); ++i) {
      const ElementNode& known = expression_.nodes[i];
      const bool same = known.kind == node.kind && known.parameter == node.parameter && known.number == node.number &&
                        known.text == node.text && known.op == node.op && known.operands == node.operands &&
                        known.operand_count == node.operand_count;
      if (same) return static_cast<Node>(i);
    }
    expression_.nodes.push_back(std::move(node));
    return static_cast<Node>(expression_.nodes.size() - 1);
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::string_view word() {
    skip_spaces();
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
      ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view expected) {
    if (word() != expected) return false;
    at_ += expected.size();
    return true;
  }
  bool take(std::string_view expected) {
    skip_spaces();
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  void close() {
    if (!take(")")) fail("')'");
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw InternalError("operators", op_.name + ": expected " + expected + " at position " + std::to_string(at_) +
                                         " of the expression: " + std::string(text_));
  }

  std::string_view text_;
  const ir::Operator& op_;
  std::size_t at_ = 0;
  ElementExpression expression_;
};

std::optional<double> number_of(const ir::Argument& argument) {
  if (const auto* integer = argument.get<std::int64_t>()) return static_cast<double>(*integer);
  if (const auto* real = argument.get<double>()) return *real;
  const auto* flag = argument.get<bool>();
  return flag == nullptr ? std::nullopt : std::make_optional(*flag ? 1.0 : 0.0);
}

const std::string* text_of(const ElementNode& node, const ir::ArgumentList& arguments) {
  if (node.kind == ElementNode::Kind::kText) return &node.text;
  const bool is_given = node.kind == ElementNode::Kind::kParameter && node.parameter < arguments.size();
  return is_given ? arguments[node.parameter].get<std::string>() : nullptr;
}

std::optional<double> compute(ElementOp op, double left, double right) {
  switch (op) {
    case ElementOp::kNegate:
      return -left;
    case ElementOp::kAbs:
      return std::abs(left);
    case ElementOp::kEqual:
      return left == right ? 1 : 0;
    case ElementOp::kLess:
      return left < right ? 1 : 0;
    default:
      return std::nullopt;
  }
}

}  // namespace

ElementExpression parse_element_expression(std::string_view text, const ir::Operator& op) {
  return Parser(text, op).parse();
}

std::optional<double> constant_value(const ElementExpression& expression, std::uint32_t index,
                                     const ir::ArgumentList& arguments) {
  const ElementNode& node = expression.nodes[index];
  if (node.kind == ElementNode::Kind::kNumber) return node.number;
  if (node.kind == ElementNode::Kind::kParameter) {
    return node.parameter < arguments.size() ? number_of(arguments[node.parameter]) : std::nullopt;
  }
  if (node.kind != ElementNode::Kind::kOperation || node.operand_count > 2) return std::nullopt;
  if (node.op == ElementOp::kEqual) {
    const std::string* left = text_of(expression.nodes[node.operands[0]], arguments);
    const std::string* right = text_of(expression.nodes[node.operands[1]], arguments);
    if (left != nullptr && right != nullptr) return *left == *right ? 1 : 0;
  }
  const auto left = constant_value(expression, node.operands[0], arguments);
  const auto right = node.operand_count == 2 ? constant_value(expression, node.operands[1], arguments) : 0;
  return left && right ? compute(node.op, *left, *right) : std::nullopt;
}

}  // namespace thunder::operators
