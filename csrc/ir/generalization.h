#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// Sizes that a program is recorded at, to see which of its numbers depend on them: for each the values of the symbols,
/// by index. The first ones are those that were traced.
using SizeSamples = std::vector<std::vector<std::int64_t>>;

/// Samples for a trace with symbols that meet its conditions: small ones, large ones, different ones and equal ones.
/// Empty: there are too few.
[[nodiscard]] SizeSamples sample_sizes(const Trace& trace);

/// The places of samples: the first one, then from small to large, as a program that differs at a small size need not
/// be made at the large ones.
[[nodiscard]] std::vector<std::size_t> from_small_to_large(const SizeSamples& samples);

/// The conditions under which two expressions are equal.
[[nodiscard]] std::vector<Condition> equality_of(const Dim& left, const Dim& right);

/// Changes a symbol that the condition sets a lower bound for, or gives the value of, so that it holds.
void adjust_to(const Condition& condition, std::vector<std::int64_t>& symbols);

/// Finds the expression that a number is which was seen at each of some sizes.
class SizeFit {
 public:
  explicit SizeFit(SizeSamples samples);

  [[nodiscard]] const SizeSamples& samples() const { return samples_; }
  /// How many values a symbol has in the samples.
  [[nodiscard]] std::size_t value_count(std::uint32_t symbol) const;
  /// Adds an expression that numbers are likely to be. Of two that are equal at all samples the first one counts: it is
  /// returned where it is another one, or is a number.
  std::optional<Dim> add(const Dim& dim);
  /// Adds the sizes and arguments of a trace. Gives the expressions among them that samples do not tell from earlier
  /// ones, with these.
  std::vector<std::pair<Dim, Dim>> add_all(const Trace& trace);
  /// The expressions that were added and that samples do not tell from a multiple of another one plus a number, with
  /// that: remainders, which are small, may be so by chance.
  [[nodiscard]] std::vector<std::pair<Dim, Dim>> multiples_by_chance() const;
  /// `numbers`: one for each sample. The expression is one that was added, a multiple of one, or of the half of one
  /// (rounded down or up), plus a number, or a sum, a difference, a product or an exact quotient of two; nullopt: it is
  /// none of these.
  [[nodiscard]] std::optional<Dim> find(const std::vector<std::int64_t>& numbers);

 private:
  [[nodiscard]] std::optional<Dim> derive(const std::vector<std::int64_t>& numbers) const;
  [[nodiscard]] std::vector<std::int64_t> evaluate_all(const Dim& dim) const;
  void keep(const Dim& dim, const std::vector<std::int64_t>& numbers);

  SizeSamples samples_;
  std::map<std::vector<std::int64_t>, std::optional<Dim>> known_;
  std::vector<Dim> expressions_;
  std::vector<std::vector<std::int64_t>> values_;  ///< numbers that each expression is, by sample
};

/// Whether objects of two traces of one family are alike.
using AreAlike = std::function<bool(ObjectConstant left, ObjectConstant right)>;

/// The trace for all sizes, of what one program was at each sample of `fit`. Throws UserError, with the operation,
/// where the traces differ in more than numbers that `fit` finds expressions for.
[[nodiscard]] Trace generalize(std::span<const Trace> traces, SizeFit& fit, const AreAlike& are_alike);

/// Whether a trace for all sizes is `trace` where the symbols have these values.
[[nodiscard]] bool is_at_sizes(const Trace& general, SymbolValues symbols, const Trace& trace,
                               const AreAlike& are_alike);

/// Adds the conditions under which no size of `sizes_of` that depends on symbols is zero or one: operations do other
/// things then. Throws UserError where one is, at the sizes that were traced.
void require_sizes_of_two(Trace& trace, const Trace& sizes_of);

}  // namespace thunder::ir
