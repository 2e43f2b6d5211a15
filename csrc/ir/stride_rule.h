#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/condition.h"
#include "ir/size.h"
#include "ir/type.h"

namespace thunder::ir {

/// How the strides of a tensor follow from its sizes, so that its elements have places of their own, but for dimensions
/// along which it is expanded. Mostly a dimension's stride is the number of elements within it.
struct StrideRule {
  enum class Kind : std::uint8_t {
    kWithin,    ///< rows follow one another
    kGap,       ///< there are `number` elements between rows, as in `x[:, :-1]`
    kFixed,     ///< the stride is `number`, as in `buffer[:, :n]`
    kFree,      ///< rows lie apart, by a distance that the sizes do not tell: `x[:, -1]`. The stride is symbol `number`
    kExpanded,  ///< the stride is zero
  };
  struct Step {
    Kind kind = Kind::kWithin;
    std::int64_t number = 0;
    friend bool operator==(const Step&, const Step&) = default;

    /// Whether rows lie further apart than they are long.
    [[nodiscard]] bool is_wider() const { return kind == Kind::kGap || kind == Kind::kFixed || kind == Kind::kFree; }
  };
  std::vector<std::size_t> order;  ///< the dimensions, from the outermost on
  std::vector<Step> steps;         ///< by dimension

  [[nodiscard]] bool has_free() const;
  friend bool operator==(const StrideRule&, const StrideRule&) = default;
};

/// With a gap wherever rows lie apart; nullopt: the strides follow no rule.
[[nodiscard]] std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides);
/// The rule that strides follow now and, as far as there is one, followed before, with other sizes. Free strides have
/// no symbols yet.
[[nodiscard]] std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides,
                                                std::span<const std::int64_t> sizes_before,
                                                std::span<const std::int64_t> strides_before);

/// The value of a symbol.
using SymbolDim = std::function<Dim(std::uint32_t symbol)>;
[[nodiscard]] Dims strides_by(const StrideRule& rule, const Dims& sizes, const SymbolDim& symbol);
/// That rows whose distance is a symbol lie apart: they neither overlap nor follow one another.
[[nodiscard]] std::vector<Condition> conditions_of(const StrideRule& rule, const Dims& sizes, const SymbolDim& symbol);
/// Whether a tensor follows the rule.
[[nodiscard]] bool follows(const StrideRule& rule, std::span<const std::int64_t> sizes,
                           std::span<const std::int64_t> strides);

}  // namespace thunder::ir
