#include "ir/condition.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "ir/layout.h"
#include "ir/size_divided_by_zero.h"

namespace thunder::ir {
namespace {

using Kind = Condition::Kind;

/// A symbol that no trace has.
constexpr std::uint32_t kOtherSymbol = std::numeric_limits<std::uint32_t>::max();

bool depends_on(const Dim& dim, std::uint32_t symbol) {
  std::vector<std::uint32_t> symbols;
  add_symbols(dim, symbols);
  return std::ranges::binary_search(symbols, symbol);
}

/// Returns the symbol that a dimension is, where `by` does not depend on it.
std::optional<std::uint32_t> symbol_to_replace(const Dim& dim, const Dim& by) {
  const auto symbol = symbol_of(dim);
  return symbol && !depends_on(by, *symbol) ? symbol : std::nullopt;
}

bool has_part(const Dim& dim, const Dim& searched) {
  bool is_found = false;
  static_cast<void>(rewrite(dim, [&](const Dim& part) {
    is_found = is_found || part == searched;
    return part;
  }));
  return is_found;
}

/// Which of two equal dimensions stands for both, second. Of two symbols the first one does, and what is a part of the
/// other one: `n` for `8 * ((n + 7) // 8)`, which could otherwise be replaced for ever.
std::pair<Dim, Dim> replacement(const Condition& condition) {
  const auto left = symbol_to_replace(condition.left, condition.right);
  const auto right = symbol_to_replace(condition.right, condition.left);
  const bool drops_right = right ? !left || *right > *left : !left && has_part(condition.right, condition.left);
  return drops_right ? std::pair(condition.right, condition.left) : std::pair(condition.left, condition.right);
}

/// Asks `questions` about each pair, until the answer is no.
class Conjunction {
 public:
  explicit Conjunction(const SizeQuestions& questions) : questions_(questions) {}

  bool operator()(const Dim& left, const Dim& right) {
    Answer answer = questions_.are_equal(left, right);
    std::ranges::move(answer.conditions, std::back_inserter(conditions_));
    return answer.is_possible;
  }
  [[nodiscard]] Answer all(bool is_possible) { return is_possible ? Answer{true, std::move(conditions_)} : Answer(); }

 private:
  const SizeQuestions& questions_;
  std::vector<Condition> conditions_;
};

}  // namespace

void add_symbols(const Condition& condition, std::vector<std::uint32_t>& symbols) {
  add_symbols(condition.left, symbols);
  add_symbols(condition.right, symbols);
}

bool holds(const Condition& condition, SymbolValues symbols) try {
  const std::int64_t left = evaluate(condition.left, symbols);
  const std::int64_t right = evaluate(condition.right, symbols);
  switch (condition.kind) {
    case Kind::kEqual:
      return left == right;
    case Kind::kDivisible:
      return right != 0 && left % right == 0;
    case Kind::kAtMost:
      return left <= right;
  }
  return false;
} catch (const SizeDividedByZero&) {
  return false;  // another condition says that the divisor is not zero
}

std::string to_string(const Condition& condition) {
  const std::string left = to_string(condition.left);
  const std::string right = to_string(condition.right);
  switch (condition.kind) {
    case Kind::kEqual:
      return left + " == " + right;
    case Kind::kDivisible:
      return "(" + left + ") % (" + right + ") == 0";
    case Kind::kAtMost:
      return left + " <= " + right;
  }
  return {};
}

Dim simplify(const Dim& dim, const Condition& condition) {
  const auto& [kind, left, right] = condition;
  switch (kind) {
    case Kind::kEqual: {
      const auto [from, to] = replacement(condition);
      return rewrite(dim, [&](const Dim& part) { return part == from ? to : part; });
    }
    case Kind::kDivisible: {
      if (is_in_sizes(condition)) {
        const Dim other = Dim::symbol(kOtherSymbol, 1);
        const Dim scaled = rewrite(dim, [&](const Dim& part) { return part == left ? right * other : part; });
        return rewrite(scaled, [&](const Dim& part) { return part == other ? left : part; });
      }
      const Dim multiple = right * floor_divide(left, right);
      return rewrite(dim, [&](const Dim& part) {
        const auto factor = exact_quotient(part, multiple);
        return factor ? *factor * left : part;
      });
    }
    case Kind::kAtMost:
      return rewrite(dim, [&](const Dim& part) {
        if (part == smaller(left, right) || part == smaller(right, left)) return left;
        return part == larger(left, right) || part == larger(right, left) ? right : part;
      });
  }
  return dim;
}

bool is_in_sizes(const Condition& condition) {
  const auto [from, to] = replacement(condition);
  switch (condition.kind) {
    case Kind::kEqual:
      return symbol_to_replace(from, to).has_value();
    case Kind::kDivisible:
      // Sizes are symbols from two on.
      return symbol_of(condition.left) && condition.right.is_concrete() &&
             condition.left.hint >= 2 * condition.right.hint;
    case Kind::kAtMost:
      return false;
  }
  return false;
}

Answer SizeQuestions::are_equal(const Dim& left, const Dim& right) const {
  if (left == right) return {true, {}};
  if (evaluate(left, traced_) != evaluate(right, traced_)) return {};
  const auto simplified = [&](Dim dim, const std::vector<Condition>& conditions) {
    for (const Condition& condition : conditions) dim = simplify(dim, condition);
    return dim;
  };
  const auto decide = [&](const std::vector<Condition>& conditions) {
    return simplified(left, conditions) == simplified(right, conditions);
  };
  std::vector<Condition> conditions;  // each makes a function of sizes one of its operands
  for (const SizeFunction& function : functions_in(left - right)) {
    const bool is_quotient = function.operation == SizeOperation::kFloorDivide;
    Condition condition{is_quotient ? Kind::kDivisible : Kind::kAtMost, function.left, function.right};
    // Equal expressions are one object, whose operands have the hints of whoever made it first.
    for (Dim* operand : {&condition.left, &condition.right}) operand->hint = evaluate(*operand, traced_);
    if (!holds(condition, traced_)) std::swap(condition.left, condition.right);
    if (!is_quotient || condition.left == function.left) conditions.push_back(std::move(condition));
  }
  if (!decide(conditions)) return {true, {{Kind::kEqual, left, right}}};
  for (std::size_t i = conditions.size(); i-- > 0;) {
    std::vector<Condition> fewer = conditions;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (decide(fewer)) conditions = std::move(fewer);
  }
  return {true, std::move(conditions)};
}

Answer SizeQuestions::is_contiguous(const TensorType& type) const {
  Conjunction equal(*this);
  return equal.all(ir::is_contiguous(type, std::ref(equal)));
}

Answer SizeQuestions::is_dense(const TensorType& type) const {
  Conjunction equal(*this);
  return equal.all(ir::is_dense(type, std::ref(equal)));
}

}  // namespace thunder::ir
