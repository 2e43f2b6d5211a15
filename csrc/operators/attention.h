#pragma once

#include <cstddef>
#include <optional>

#include "ir/trace.h"

namespace thunder::operators {

/// Where an operator of attention has its arguments: query [B, H, L, E], key and value [B, G, S, E], of which H / G
/// neighbouring heads share each.
struct Attention {
  std::size_t query = 0;
  std::size_t key = 1;
  std::size_t value = 2;
  std::size_t mask = 3;
  std::optional<std::size_t> dropout{};  ///< a probability
  std::size_t is_causal = 4;
  std::size_t scale = 5;
};
/// Null: the operator is no attention.
[[nodiscard]] const Attention* find_attention(const ir::Operator& op);

}  // namespace thunder::operators
