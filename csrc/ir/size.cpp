#include "ir/size.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ir/float_size.h"
#include "ir/size_divided_by_zero.h"

namespace thunder::ir {

namespace {

/// A factor times a product of leaves, which are symbols and functions of sizes.
struct Term {
  std::int64_t factor = 1;
  std::vector<const SizeExpression*> leaves;  ///< sorted by their text
};

}  // namespace

/// Canonical: a leaf, or a sum of terms with different leaves, none of them zero, that is no leaf and no number.
class SizeExpression {
 public:
  enum class Kind : std::uint8_t { kSymbol, kSum, kFloorDivide, kMin, kMax, kSquareRoot, kRoundFloat };
  Kind kind = Kind::kSymbol;
  std::uint32_t symbol = 0;
  std::vector<Term> terms;  ///< for kSum: those with more leaves first
  Dim left;                 ///< first operand of a function
  Dim right;                ///< zero for kSquareRoot and kRoundFloat, which have one operand
  FloatFunction function;   ///< for kRoundFloat
  std::string text;
};

namespace {

using Kind = SizeExpression::Kind;

/// The one object for an expression with this text. Expressions live as long as the process: there are few.
const SizeExpression* intern(SizeExpression expression) {
  struct Table {
    std::mutex mutex;
    std::unordered_map<std::string_view, std::unique_ptr<const SizeExpression>> by_text;
  };
  static auto* const kTable = new Table;
  const std::scoped_lock lock(kTable->mutex);
  const auto known = kTable->by_text.find(expression.text);
  if (known != kTable->by_text.end()) return known->second.get();
  auto made = std::make_unique<const SizeExpression>(std::move(expression));
  const SizeExpression* result = made.get();
  kTable->by_text.emplace(result->text, std::move(made));
  return result;
}

bool is_before(const SizeExpression* left, const SizeExpression* right) {
  const auto key = [](const SizeExpression* leaf) { return std::pair(leaf->kind != Kind::kSymbol, leaf->symbol); };
  if (key(left) != key(right)) return key(left) < key(right);
  return left->text < right->text;
}
bool are_before(const std::vector<const SizeExpression*>& left, const std::vector<const SizeExpression*>& right) {
  if (left.size() != right.size()) return left.size() > right.size();
  return std::ranges::lexicographical_compare(left, right, &is_before);
}

std::vector<Term> terms_of(const Dim& dim) {
  if (dim.is_concrete()) return dim.hint == 0 ? std::vector<Term>() : std::vector<Term>{{dim.hint, {}}};
  if (dim.expression->kind == Kind::kSum) return dim.expression->terms;
  return {{1, {dim.expression}}};
}

std::string text_of(const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) {
    const bool is_negative = term.factor < 0;
    if (!text.empty()) {
      text += is_negative ? " - " : " + ";
    } else if (is_negative) {
      text += '-';
    }
    const std::int64_t magnitude = is_negative ? -term.factor : term.factor;
    if (magnitude != 1 || term.leaves.empty()) text += std::to_string(magnitude);
    for (std::size_t i = 0; i < term.leaves.size(); ++i) {
      if (i > 0 || magnitude != 1) text += '*';
      text += term.leaves[i]->text;
    }
  }
  return text;
}

/// The dimension that a sum of terms is, in any order and with equal leaves.
Dim sum_of(std::vector<Term> terms, std::int64_t hint) {
  std::ranges::sort(terms, &are_before, &Term::leaves);
  std::vector<Term> sum;
  for (Term& term : terms) {
    if (!sum.empty() && sum.back().leaves == term.leaves) {
      sum.back().factor += term.factor;
    } else {
      sum.push_back(std::move(term));
    }
    if (sum.back().factor == 0) sum.pop_back();
  }
  if (sum.empty()) return 0;
  if (sum.size() == 1 && sum[0].leaves.empty()) return sum[0].factor;
  Dim result(hint);
  if (sum.size() == 1 && sum[0].factor == 1 && sum[0].leaves.size() == 1) {
    result.expression = sum[0].leaves[0];
    return result;
  }
  SizeExpression expression;
  expression.kind = Kind::kSum;
  expression.text = text_of(sum);
  expression.terms = std::move(sum);
  result.expression = intern(std::move(expression));
  return result;
}

Term product_of(const Term& left, const Term& right) {
  Term product{left.factor * right.factor, {}};
  std::ranges::merge(left.leaves, right.leaves, std::back_inserter(product.leaves), &is_before);
  return product;
}

/// nullopt: the divisor has a leaf that the term has not, or its factor does not divide the term's.
std::optional<Term> quotient_of(const Term& term, const Term& divisor) {
  if (term.factor % divisor.factor != 0) return std::nullopt;
  Term quotient{term.factor / divisor.factor, term.leaves};
  for (const SizeExpression* leaf : divisor.leaves) {
    const auto found = std::ranges::find(quotient.leaves, leaf);
    if (found == quotient.leaves.end()) return std::nullopt;
    quotient.leaves.erase(found);
  }
  return quotient;
}

std::int64_t floor_quotient(std::int64_t left, std::int64_t right) {
  if (right == 0) throw SizeDividedByZero();
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

std::int64_t rounded_root(std::int64_t number) {
  if (number <= 0) return 0;
  auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(number)));
  while (root > number / root) --root;
  while (root + 1 <= number / (root + 1)) ++root;
  return root;
}

double apply(const FloatStep& step, double number) {
  switch (step.operation) {
    case FloatOperation::kAdd:
      return number + step.operand;
    case FloatOperation::kMultiply:
      return number * step.operand;
    case FloatOperation::kDivide:
      return number / step.operand;
    case FloatOperation::kPower:
      return std::pow(number, step.operand);
    case FloatOperation::kSquareRoot:
      return std::sqrt(number);
    case FloatOperation::kNegate:
      return -number;
  }
  return number;
}

double rounded(FloatRounding rounding, double number) {
  switch (rounding) {
    case FloatRounding::kFloor:
      return std::floor(number);
    case FloatRounding::kCeil:
      return std::ceil(number);
    case FloatRounding::kNearestEven:
      return std::nearbyint(number);
    case FloatRounding::kTruncate:
      return std::trunc(number);
  }
  return number;
}

/// Numbers that are none, or do not fit into 64 bits, become the largest one, or the least: a condition that bounds
/// them is not met.
std::int64_t apply(const FloatFunction& function, std::int64_t operand) {
  auto number = static_cast<double>(operand);
  for (const FloatStep& step : function.steps) number = apply(step, number);
  number = rounded(function.rounding, number);
  constexpr double kEnd = 0x1p63;
  if (number >= -kEnd && number < kEnd) return static_cast<std::int64_t>(number);
  return number < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

/// The shortest text that stands for no other number.
std::string text_of(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

/// `operand` needs no parentheses.
std::string text_of(const FloatFunction& function, const std::string& operand) {
  std::string text = operand;
  for (const FloatStep& step : function.steps) {
    const bool is_first = &step == &function.steps.front();
    const std::string inner = is_first ? text : "(" + text + ")";
    const std::string number = step.operand < 0 ? "(" + text_of(step.operand) + ")" : text_of(step.operand);
    switch (step.operation) {
      case FloatOperation::kAdd:
        text = inner + " + " + number;
        break;
      case FloatOperation::kMultiply:
        text = number + "*" + inner;
        break;
      case FloatOperation::kDivide:
        text = inner + "/" + number;
        break;
      case FloatOperation::kPower:
        text = inner + "**" + number;
        break;
      case FloatOperation::kSquareRoot:
        text = "math.sqrt(" + text + ")";
        break;
      case FloatOperation::kNegate:
        text = "-" + inner;
        break;
    }
  }
  static constexpr std::array<const char*, 4> kRoundings{"math.floor(", "math.ceil(", "round(", "int("};
  return kRoundings[static_cast<std::size_t>(function.rounding)] + text + ")";
}

std::int64_t apply(Kind kind, std::int64_t left, std::int64_t right) {
  if (kind == Kind::kSquareRoot) return rounded_root(left);
  if (kind == Kind::kFloorDivide) return floor_quotient(left, right);
  return kind == Kind::kMin ? std::min(left, right) : std::max(left, right);
}

/// The one object for a function of dimensions that are not both numbers.
const SizeExpression* intern_function(Kind kind, const Dim& left, const Dim& right) {
  SizeExpression expression;
  expression.kind = kind;
  expression.left = left;
  expression.right = right;
  const auto operand = [](const Dim& dim) {
    const bool is_leaf = dim.is_concrete() ? dim.hint >= 0 : dim.expression->kind != Kind::kSum;
    return is_leaf ? to_string(dim) : "(" + to_string(dim) + ")";
  };
  if (kind == Kind::kSquareRoot) {
    expression.text = "int(" + operand(left) + "**0.5)";
  } else if (kind == Kind::kFloorDivide) {
    expression.text = "(" + operand(left) + "//" + operand(right) + ")";
  } else {
    expression.text = (kind == Kind::kMin ? "min(" : "max(") + to_string(left) + ", " + to_string(right) + ")";
  }
  return intern(std::move(expression));
}

/// A part of an expression, whose value is not known.
Dim part_of(const SizeExpression* expression) {
  Dim part(1);
  part.expression = expression;
  return part;
}

Dim function_of(Kind kind, const Dim& left, const Dim& right) {
  Dim result(apply(kind, left.hint, right.hint));
  if (!left.is_concrete() || !right.is_concrete()) result.expression = intern_function(kind, left, right);
  return result;
}

}  // namespace

Dim Dim::symbol(std::uint32_t index, std::int64_t hint) {
  SizeExpression expression;
  expression.symbol = index;
  expression.text = "s" + std::to_string(index);
  Dim dim(hint);
  dim.expression = intern(std::move(expression));
  return dim;
}

Dim operator+(const Dim& left, const Dim& right) {
  if (left.is_concrete() && right.is_concrete()) return left.hint + right.hint;
  std::vector<Term> terms = terms_of(left);
  std::ranges::move(terms_of(right), std::back_inserter(terms));
  return sum_of(std::move(terms), left.hint + right.hint);
}

Dim operator-(const Dim& left, const Dim& right) { return left + Dim(-1) * right; }

Dim operator*(const Dim& left, const Dim& right) {
  if (left.is_concrete() && right.is_concrete()) return left.hint * right.hint;
  const std::vector<Term> rights = terms_of(right);
  std::vector<Term> terms;
  for (const Term& term : terms_of(left)) {
    for (const Term& other : rights) terms.push_back(product_of(term, other));
  }
  return sum_of(std::move(terms), left.hint * right.hint);
}

Dim floor_divide(const Dim& left, const Dim& right) {
  if (const auto quotient = exact_quotient(left, right)) return *quotient;
  return function_of(Kind::kFloorDivide, left, right);
}
Dim smaller(const Dim& left, const Dim& right) { return left == right ? left : function_of(Kind::kMin, left, right); }
Dim larger(const Dim& left, const Dim& right) { return left == right ? left : function_of(Kind::kMax, left, right); }

namespace {

/// nullopt: it is the square of no product of symbols.
std::optional<Dim> exact_root(const Dim& dim) {
  const std::vector<Term> terms = terms_of(dim);
  if (terms.size() != 1 || terms[0].leaves.size() % 2 != 0) return std::nullopt;
  Term root{rounded_root(terms[0].factor), {}};
  if (root.factor * root.factor != terms[0].factor) return std::nullopt;
  for (std::size_t i = 0; i < terms[0].leaves.size(); i += 2) {
    const SizeExpression* leaf = terms[0].leaves[i];
    if (leaf != terms[0].leaves[i + 1] || leaf->kind != Kind::kSymbol) return std::nullopt;
    root.leaves.push_back(leaf);
  }
  return sum_of({std::move(root)}, rounded_root(dim.hint));
}

}  // namespace

Dim square_root(const Dim& dim) {
  if (const auto root = exact_root(dim)) return *root;
  return function_of(Kind::kSquareRoot, dim, 0);
}

namespace {

/// The one object for a function of a dimension that is no number.
const SizeExpression* intern_rounded(const Dim& dim, const FloatFunction& function) {
  SizeExpression expression;
  expression.kind = Kind::kRoundFloat;
  expression.left = dim;
  expression.function = function;
  const bool is_sum = dim.expression->kind == Kind::kSum;
  expression.text = text_of(function, is_sum ? "(" + to_string(dim) + ")" : to_string(dim));
  return intern(std::move(expression));
}

}  // namespace

Dim round_float(const Dim& dim, const FloatFunction& function) {
  Dim result(apply(function, dim.hint));
  if (!dim.is_concrete()) result.expression = intern_rounded(dim, function);
  return result;
}

std::optional<Dim> exact_quotient(const Dim& dim, const Dim& divisor) {
  if (divisor == Dim(0)) return std::nullopt;
  if (dim.is_concrete() && divisor.is_concrete()) {
    return dim.hint % divisor.hint == 0 ? std::optional<Dim>(dim.hint / divisor.hint) : std::nullopt;
  }
  // Long division of polynomials, by the first terms.
  const Term first = terms_of(divisor).front();
  Dim rest = dim;
  Dim quotient = 0;
  while (rest != Dim(0)) {
    const auto term = quotient_of(terms_of(rest).front(), first);
    if (!term) return std::nullopt;
    const Dim part = sum_of({*term}, 0);
    quotient = quotient + part;
    rest = rest - part * divisor;
  }
  quotient.hint = quotient.is_concrete() || divisor.hint == 0 ? quotient.hint : dim.hint / divisor.hint;
  return quotient;
}

Dim product_of(std::span<const Dim> dims) {
  Dim product = 1;
  for (const Dim& dim : dims) product *= dim;
  return product;
}

Dim rewrite(const Dim& dim, const std::function<Dim(const Dim& part)>& rule) {
  Dim result = dim;
  if (!dim.is_concrete() && dim.expression->kind == Kind::kSum) {
    result = 0;
    for (const Term& term : dim.expression->terms) {
      Dim product = term.factor;
      for (const SizeExpression* leaf : term.leaves) product *= rewrite(part_of(leaf), rule);
      result += rule(product);
    }
  } else if (!dim.is_concrete() && dim.expression->kind == Kind::kRoundFloat) {
    result = round_float(rewrite(dim.expression->left, rule), dim.expression->function);
  } else if (!dim.is_concrete() && dim.expression->kind != Kind::kSymbol) {
    const Kind kind = dim.expression->kind;
    const Dim left = rewrite(dim.expression->left, rule);
    const Dim right = rewrite(dim.expression->right, rule);
    const auto exact = kind == Kind::kFloorDivide  ? exact_quotient(left, right)
                       : kind == Kind::kSquareRoot ? exact_root(left)
                                                   : std::nullopt;
    if (left.is_concrete() && right.is_concrete()) {
      result = apply(kind, left.hint, right.hint);
    } else if (exact || left == right) {
      result = exact.value_or(left);
    } else {
      result.expression = intern_function(kind, left, right);
    }
  }
  result = rule(result);
  if (!result.is_concrete()) result.hint = dim.hint;
  return result;
}

std::vector<SizeFunction> functions_in(const Dim& dim) {
  std::vector<SizeFunction> functions;
  if (dim.is_concrete()) return functions;
  for (const SizeExpression* part : parts_of(*dim.expression)) {
    std::ranges::move(functions_in(part_of(part)), std::back_inserter(functions));
  }
  const auto& [kind, symbol, terms, left, right, function, text] = *dim.expression;
  if (kind == Kind::kFloorDivide) functions.push_back({SizeOperation::kFloorDivide, left, right});
  if (kind == Kind::kMin) functions.push_back({SizeOperation::kMin, left, right});
  if (kind == Kind::kMax) functions.push_back({SizeOperation::kMax, left, right});
  return functions;
}

namespace {

/// Numbers that do not fit into 64 bits become the largest one, or the least: a condition that bounds them is not met.
std::int64_t limit(bool is_negative) {
  return is_negative ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

std::int64_t multiply_within(std::int64_t left, std::int64_t right) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(left, right, &product) ? limit((left < 0) != (right < 0)) : product;
}

std::int64_t add_within(std::int64_t left, std::int64_t right) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(left, right, &sum) ? limit(left < 0) : sum;
}

}  // namespace

std::int64_t evaluate(const Dim& dim, SymbolValues symbols) {
  if (dim.is_concrete()) return dim.hint;
  const SizeExpression& expression = *dim.expression;
  if (expression.kind == Kind::kSymbol) return symbols[expression.symbol];
  if (expression.kind == Kind::kRoundFloat) {
    return apply(expression.function, evaluate(expression.left, symbols));
  }
  if (expression.kind != Kind::kSum) {
    return apply(expression.kind, evaluate(expression.left, symbols), evaluate(expression.right, symbols));
  }
  std::int64_t sum = 0;
  for (const Term& term : expression.terms) {
    std::int64_t product = term.factor;
    for (const SizeExpression* leaf : term.leaves) product = multiply_within(product, evaluate(part_of(leaf), symbols));
    sum = add_within(sum, product);
  }
  return sum;
}

std::vector<std::int64_t> evaluate(std::span<const Dim> dims, SymbolValues symbols) {
  std::vector<std::int64_t> values;
  values.reserve(dims.size());
  for (const Dim& dim : dims) values.push_back(evaluate(dim, symbols));
  return values;
}

namespace {

std::optional<std::int64_t> least_term(const Term& term) {
  if (term.leaves.empty()) return term.factor;
  std::int64_t least = term.factor;
  for (const SizeExpression* leaf : term.leaves) {
    const auto factor = least_value(part_of(leaf));
    if (term.factor < 0 || !factor || *factor < 0) return std::nullopt;
    least *= *factor;
  }
  return least;
}

/// Whether a larger size never gives a smaller number: rounding to a float keeps the order.
bool is_increasing(const FloatFunction& function) {
  return std::ranges::all_of(function.steps, [](const FloatStep& step) {
    const bool scales = step.operation == FloatOperation::kMultiply || step.operation == FloatOperation::kDivide;
    if (scales) return step.operand > 0;
    return step.operation == FloatOperation::kAdd || step.operation == FloatOperation::kSquareRoot;
  });
}

std::optional<std::int64_t> least_function(const SizeExpression& function) {
  const auto left = least_value(function.left);
  if (function.kind == Kind::kRoundFloat) {
    const bool is_known = left && is_increasing(function.function);
    return is_known ? std::optional(apply(function.function, *left)) : std::nullopt;
  }
  const auto right = least_value(function.right);
  if (function.kind == Kind::kMax && left && right) return std::max(*left, *right);
  if (!left || (function.kind == Kind::kMin && !right)) return std::nullopt;
  if (function.kind == Kind::kMin) return std::min(*left, *right);
  if (function.kind == Kind::kSquareRoot) return rounded_root(*left);
  const bool divides_by_number = function.right.is_concrete() && function.right.hint > 0;
  return divides_by_number ? std::optional(floor_quotient(*left, function.right.hint)) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> least_value(const Dim& dim) {
  if (dim.is_concrete()) return dim.hint;
  const SizeExpression& expression = *dim.expression;
  if (expression.kind == Kind::kSymbol) return 2;
  if (expression.kind != Kind::kSum) return least_function(expression);
  std::int64_t sum = 0;
  for (const Term& term : expression.terms) {
    const auto least = least_term(term);
    if (!least) return std::nullopt;
    sum += *least;
  }
  return sum;
}

namespace {

double magnitude(const FloatFunction& function, double number) {
  double largest = number;
  for (const FloatStep& step : function.steps) {
    const bool adds = step.operation == FloatOperation::kAdd;
    number = adds ? number + std::abs(step.operand) : std::abs(apply(step, number));
    largest = std::max(largest, number);
  }
  return largest + 1;
}

}  // namespace

double magnitude(const Dim& dim, const std::function<double(std::uint32_t symbol)>& size_of) {
  if (dim.is_concrete()) return std::abs(static_cast<double>(dim.hint));
  const SizeExpression& expression = *dim.expression;
  if (expression.kind == Kind::kSymbol) return size_of(expression.symbol);
  if (expression.kind == Kind::kSum) {
    double sum = 0;
    for (const Term& term : expression.terms) {
      double product = std::abs(static_cast<double>(term.factor));
      for (const SizeExpression* leaf : term.leaves) product *= magnitude(part_of(leaf), size_of);
      sum += product;
    }
    return sum;
  }
  const double left = magnitude(expression.left, size_of);
  if (expression.kind == Kind::kSquareRoot) return std::sqrt(left) + 1;
  if (expression.kind == Kind::kRoundFloat) return magnitude(expression.function, left);
  const double right = magnitude(expression.right, size_of);
  if (expression.kind != Kind::kFloorDivide) return std::max(left, right);
  return (expression.right.is_concrete() ? left / right : left) + 1;
}

std::string to_string(const Dim& dim) { return dim.is_concrete() ? std::to_string(dim.hint) : dim.expression->text; }

std::optional<std::uint32_t> symbol_of(const Dim& dim) {
  const bool is_symbol = !dim.is_concrete() && dim.expression->kind == Kind::kSymbol;
  return is_symbol ? std::make_optional(dim.expression->symbol) : std::nullopt;
}

void add_symbols(const Dim& dim, std::vector<std::uint32_t>& symbols) {
  if (dim.is_concrete()) return;
  const SizeExpression& expression = *dim.expression;
  if (expression.kind == Kind::kSymbol) {
    const auto place = std::ranges::lower_bound(symbols, expression.symbol);
    if (place == symbols.end() || *place != expression.symbol) symbols.insert(place, expression.symbol);
    return;
  }
  for (const SizeExpression* part : parts_of(expression)) add_symbols(part_of(part), symbols);
}

std::vector<const SizeExpression*> parts_of(const SizeExpression& expression) {
  std::vector<const SizeExpression*> parts;
  for (const Term& term : expression.terms) parts.insert(parts.end(), term.leaves.begin(), term.leaves.end());
  for (const Dim* operand : {&expression.left, &expression.right}) {
    if (!operand->is_concrete()) parts.push_back(operand->expression);
  }
  return parts;
}

void write_expression(ByteWriter& writer, const SizeExpression& expression,
                      const std::function<std::uint64_t(const SizeExpression*)>& number_of) {
  writer.write_number(static_cast<std::uint64_t>(expression.kind));
  if (expression.kind == Kind::kSymbol) {
    writer.write_number(expression.symbol);
  } else if (expression.kind == Kind::kSum) {
    writer.write_number(expression.terms.size());
    for (const Term& term : expression.terms) {
      writer.write_signed(term.factor);
      writer.write_number(term.leaves.size());
      for (const SizeExpression* leaf : term.leaves) writer.write_number(number_of(leaf));
    }
  } else if (expression.kind == Kind::kRoundFloat) {
    writer.write_number(number_of(expression.left.expression));
    writer.write_number(static_cast<std::uint64_t>(expression.function.rounding));
    writer.write_number(expression.function.steps.size());
    for (const FloatStep& step : expression.function.steps) {
      writer.write_number(static_cast<std::uint64_t>(step.operation));
      writer.write_number(std::bit_cast<std::uint64_t>(step.operand));
    }
  } else {
    for (const Dim* operand : {&expression.left, &expression.right}) {
      writer.write_signed(operand->hint);
      writer.write_number(operand->is_concrete() ? 0 : number_of(operand->expression) + 1);
    }
  }
}

namespace {

/// Longer ones are not read back: nested a thousand times, an expression would exhaust the stack.
constexpr std::size_t kLongestText = 4096;
/// Tables of symbols have as many elements.
constexpr std::uint32_t kMostSymbols = 1 << 16;

const SizeExpression* earlier_one(std::span<const SizeExpression* const> earlier, std::uint64_t number) {
  THUNDER_CHECK(number < earlier.size(), "ir/size", "an expression consists of one that is not there");
  return earlier[static_cast<std::size_t>(number)];
}

std::vector<Term> read_terms(ByteReader& reader, std::span<const SizeExpression* const> earlier) {
  std::vector<Term> terms(reader.read_count());
  for (Term& term : terms) {
    term.factor = reader.read_signed();
    const bool is_plain = term.factor != 0 && term.factor != std::numeric_limits<std::int64_t>::min();
    term.leaves.resize(reader.read_count());
    for (const SizeExpression*& leaf : term.leaves) {
      leaf = earlier_one(earlier, reader.read_number());
      THUNDER_CHECK(leaf->kind != Kind::kSum, "ir/size", "a sum is a factor of another");
    }
    THUNDER_CHECK(is_plain && std::ranges::is_sorted(term.leaves, &is_before), "ir/size", "a term is not canonical");
  }
  for (std::size_t i = 1; i < terms.size(); ++i) {
    THUNDER_CHECK(are_before(terms[i - 1].leaves, terms[i].leaves), "ir/size", "a sum is not canonical");
  }
  return terms;
}

FloatFunction read_function(ByteReader& reader) {
  FloatFunction function;
  const std::uint64_t rounding = reader.read_number();
  THUNDER_CHECK(rounding <= static_cast<std::uint64_t>(FloatRounding::kTruncate), "ir/size", "no such rounding");
  function.rounding = static_cast<FloatRounding>(rounding);
  function.steps.resize(reader.read_count());
  for (FloatStep& step : function.steps) {
    const std::uint64_t operation = reader.read_number();
    THUNDER_CHECK(operation <= static_cast<std::uint64_t>(FloatOperation::kNegate), "ir/size",
                  "no such operation on a float");
    step = {static_cast<FloatOperation>(operation), std::bit_cast<double>(reader.read_number())};
    THUNDER_CHECK(std::isfinite(step.operand), "ir/size", "an operand of a float is no number");
  }
  return function;
}

}  // namespace

const SizeExpression* read_expression(ByteReader& reader, std::span<const SizeExpression* const> earlier) {
  const std::uint64_t kind = reader.read_number();
  THUNDER_CHECK(kind <= static_cast<std::uint64_t>(Kind::kRoundFloat), "ir/size", "no such kind of expression");
  Dim result;
  if (kind == static_cast<std::uint64_t>(Kind::kSymbol)) {
    const std::uint32_t symbol = reader.read_small();
    THUNDER_CHECK(symbol < kMostSymbols, "ir/size", "there are too many symbols");
    result = Dim::symbol(symbol, 0);
  } else if (kind == static_cast<std::uint64_t>(Kind::kSum)) {
    result = sum_of(read_terms(reader, earlier), 0);
  } else if (kind == static_cast<std::uint64_t>(Kind::kRoundFloat)) {
    Dim operand;
    operand.expression = earlier_one(earlier, reader.read_number());
    result = round_float(operand, read_function(reader));
  } else {
    std::array<Dim, 2> operands;
    for (Dim& operand : operands) {
      operand.hint = reader.read_signed();
      const std::uint64_t number = reader.read_number();
      if (number != 0) operand.expression = earlier_one(earlier, number - 1);
    }
    const bool is_number = operands[0].is_concrete() && operands[1].is_concrete();
    const bool has_two = kind != static_cast<std::uint64_t>(Kind::kSquareRoot) || operands[1] == Dim(0);
    THUNDER_CHECK(has_two, "ir/size", "a square root has two operands");
    if (!is_number) result.expression = intern_function(static_cast<Kind>(kind), operands[0], operands[1]);
  }
  THUNDER_CHECK(!result.is_concrete(), "ir/size", "an expression is a number");
  THUNDER_CHECK(result.expression->text.size() <= kLongestText, "ir/size", "an expression is too long");
  return result.expression;
}

namespace {

double ratio(const SizeRatio& ratio, std::int64_t numerator, std::int64_t denominator) {
  return ratio.factor * static_cast<double>(numerator) / std::max(static_cast<double>(denominator) - ratio.less, 0.0);
}

}  // namespace

std::optional<double> SizeRatio::value() const {
  if (!numerator.is_concrete() || !denominator.is_concrete()) return std::nullopt;
  return ratio(*this, numerator.hint, denominator.hint);
}

double SizeRatio::at(SymbolValues symbols) const {
  return ratio(*this, evaluate(numerator, symbols), evaluate(denominator, symbols));
}

}  // namespace thunder::ir
