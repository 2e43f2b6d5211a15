#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/size.h"
#include "ir/type.h"

namespace thunder::ir {

/// How the strides of a tensor follow from its sizes. Each dimension's stride is the number of elements within it, but
/// for one at most, whose rows lie further apart: those of `x[:, :-1]`, with one element between them, or those of
/// `x[:, :n]`, whose stride is the same for each `n`.
struct StrideRule {
  std::vector<std::size_t> order;    ///< the dimensions, from the outermost on
  std::optional<std::size_t> wider;  ///< the one whose stride is larger
  std::int64_t gap = 0;              ///< by how many elements
  std::int64_t stride = 0;           ///< if not zero, in place of `gap`: its stride, a number

  friend bool operator==(const StrideRule&, const StrideRule&) = default;
};

/// With a gap, where there is one; nullopt: the strides follow no such rule.
[[nodiscard]] std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides);
/// The rule that strides follow now and followed before, with other sizes.
[[nodiscard]] std::optional<StrideRule> rule_of(std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides,
                                                std::span<const std::int64_t> sizes_before,
                                                std::span<const std::int64_t> strides_before);
[[nodiscard]] Dims strides_by(const StrideRule& rule, const Dims& sizes);
/// Whether a tensor follows the rule, with elements that have places of their own.
[[nodiscard]] bool follows(const StrideRule& rule, std::span<const std::int64_t> sizes,
                           std::span<const std::int64_t> strides);

}  // namespace thunder::ir
