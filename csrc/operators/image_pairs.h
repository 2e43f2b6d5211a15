#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ir/argument.h"

namespace thunder::operators {

/// A number for each direction of an image.
using Pair = std::array<std::int64_t, 2>;

/// The pair that a list of two is, or of one for both directions; nullopt: it is something else.
[[nodiscard]] inline std::optional<Pair> pair_of(const ir::Argument& argument) {
  const auto* list = argument.get<ir::ArgumentList>();
  if (list == nullptr || list->empty() || list->size() > 2) return std::nullopt;
  const auto* first = list->front().get<std::int64_t>();
  const auto* last = list->back().get<std::int64_t>();
  return first == nullptr || last == nullptr ? std::nullopt : std::make_optional(Pair{*first, *last});
}

}  // namespace thunder::operators
