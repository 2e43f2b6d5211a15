#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace thunder::ir {

class SizeExpression;

/// A dimension, stride or offset: a number, or an expression over the symbols of the trace, with the value that it had
/// when it was recorded. A symbol stands for a size of an input, from two on: what is empty, or broadcasts, is a
/// number.
struct Dim {
  std::int64_t hint = 0;
  const SizeExpression* expression = nullptr;  ///< null: the number `hint`. Equal expressions are one object.

  Dim() = default;
  Dim(std::int64_t value) : hint(value) {}  // NOLINT(google-explicit-constructor): a number is a dimension
  [[nodiscard]] static Dim symbol(std::uint32_t index, std::int64_t hint);

  [[nodiscard]] bool is_concrete() const { return expression == nullptr; }
  /// Whatever the symbols are.
  friend bool operator==(const Dim& left, const Dim& right) {
    return left.expression == right.expression && (left.expression != nullptr || left.hint == right.hint);
  }
};

using Dims = std::vector<Dim>;

/// The values of a trace's symbols, by index.
using SymbolValues = std::span<const std::int64_t>;

[[nodiscard]] Dim operator+(const Dim& left, const Dim& right);
[[nodiscard]] Dim operator-(const Dim& left, const Dim& right);
[[nodiscard]] Dim operator*(const Dim& left, const Dim& right);
inline Dim& operator+=(Dim& left, const Dim& right) { return left = left + right; }
inline Dim& operator*=(Dim& left, const Dim& right) { return left = left * right; }
/// Rounded towards minus infinity, as Python's `//`.
[[nodiscard]] Dim floor_divide(const Dim& left, const Dim& right);
[[nodiscard]] Dim smaller(const Dim& left, const Dim& right);
[[nodiscard]] Dim larger(const Dim& left, const Dim& right);
/// Rounded down, as `math.isqrt`. The dimension is not negative.
[[nodiscard]] Dim square_root(const Dim& dim);
/// The dimension that `divisor` times gives `dim`, whatever the symbols are; nullopt: there is no such expression.
[[nodiscard]] std::optional<Dim> exact_quotient(const Dim& dim, const Dim& divisor);
[[nodiscard]] Dim product_of(std::span<const Dim> dims);

/// The dimension with its parts, innermost first, replaced by what `rule` gives, which is equal for the sizes that were
/// traced: symbols, functions of sizes, terms of sums, and the sum.
[[nodiscard]] Dim rewrite(const Dim& dim, const std::function<Dim(const Dim& part)>& rule);

enum class SizeOperation : std::uint8_t { kFloorDivide, kMin, kMax };
struct SizeFunction {
  SizeOperation operation = SizeOperation::kFloorDivide;
  Dim left;
  Dim right;
};
/// The functions that a dimension is made of, those within operands first. Hints of operands mean nothing.
[[nodiscard]] std::vector<SizeFunction> functions_in(const Dim& dim);

[[nodiscard]] std::int64_t evaluate(const Dim& dim, SymbolValues symbols);
[[nodiscard]] std::vector<std::int64_t> evaluate(std::span<const Dim> dims, SymbolValues symbols);
/// A number that the dimension is not below, whatever the symbols are, which are two or more; nullopt: none is known.
[[nodiscard]] std::optional<std::int64_t> least_value(const Dim& dim);
/// A bound of the absolute values of all numbers that computing a dimension meets, where symbols are as large as
/// `size_of` says.
[[nodiscard]] double magnitude(const Dim& dim, const std::function<double(std::uint32_t symbol)>& size_of);
/// As Python: `64*s0 + s1`.
[[nodiscard]] std::string to_string(const Dim& dim);
/// The symbol that a dimension is by itself; nullopt: it is something else.
[[nodiscard]] std::optional<std::uint32_t> symbol_of(const Dim& dim);
/// Adds the symbols that a dimension depends on to a sorted list.
void add_symbols(const Dim& dim, std::vector<std::uint32_t>& symbols);

/// The expressions that one consists of.
[[nodiscard]] std::vector<const SizeExpression*> parts_of(const SizeExpression& expression);
/// `number_of` numbers the expressions that were written before: those that it consists of.
void write_expression(ByteWriter& writer, const SizeExpression& expression,
                      const std::function<std::uint64_t(const SizeExpression*)>& number_of);
/// Reads an expression; `earlier` are those that were read before. Throws InternalError for what is none.
[[nodiscard]] const SizeExpression* read_expression(ByteReader& reader, std::span<const SizeExpression* const> earlier);

/// A quotient of sizes as a floating-point number: `factor * numerator / max(denominator - less, 0)`.
struct SizeRatio {
  double factor = 1;
  Dim numerator = 1;
  Dim denominator = 1;
  double less = 0;

  /// nullopt: it depends on symbols.
  [[nodiscard]] std::optional<double> value() const;
  [[nodiscard]] double at(SymbolValues symbols) const;
};

}  // namespace thunder::ir
