#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/size.h"
#include "ir/type.h"

namespace thunder::ir {

/// A relation between sizes without which a trace is wrong: a program does not run with others.
struct Condition {
  enum class Kind : std::uint8_t {
    kEqual,
    kDivisible,  ///< `right` divides `left`
    kAtMost,     ///< `left` is no larger than `right`
  };
  Kind kind = Kind::kEqual;
  Dim left;
  Dim right;

  friend bool operator==(const Condition&, const Condition&) = default;
};

[[nodiscard]] bool holds(const Condition& condition, SymbolValues symbols);
/// Adds the symbols of both sides, as `add_symbols` of a dimension does.
void add_symbols(const Condition& condition, std::vector<std::uint32_t>& symbols);
/// As Python: `s0 % 4 == 0`.
[[nodiscard]] std::string to_string(const Condition& condition);
/// The dimension where the condition holds, in fewer words: `min(s0, 64)` is 64 or `s0`. Of two equal dimensions the
/// one that is a symbol gives way to the other. A symbol that a number divides stands for the quotient from then on:
/// `s0` is `4*s0`, and `s0//4` is `s0`.
[[nodiscard]] Dim simplify(const Dim& dim, const Condition& condition);
/// Whether sizes of inputs, simplified so, say what the condition does.
[[nodiscard]] bool is_in_sizes(const Condition& condition);

/// The answer to a question about sizes: no, yes, or under conditions.
struct Answer {
  bool is_possible = false;           ///< it holds for the sizes that were traced
  std::vector<Condition> conditions;  ///< under which it holds; none: whatever the symbols are

  [[nodiscard]] bool is_yes() const { return is_possible && conditions.empty(); }
};

/// Answers for a trace whose symbols had these values. Conditions are true of them.
class SizeQuestions {
 public:
  explicit SizeQuestions(std::vector<std::int64_t> traced) : traced_(std::move(traced)) {}

  [[nodiscard]] Answer are_equal(const Dim& left, const Dim& right) const;
  /// As the functions of `layout.h`, which say whether the answer is yes.
  [[nodiscard]] Answer is_contiguous(const TensorType& type) const;
  [[nodiscard]] Answer is_dense(const TensorType& type) const;

 private:
  std::vector<std::int64_t> traced_;  ///< by symbol
};

}  // namespace thunder::ir
