#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fusion/roles.h"
#include "ir/trace.h"

namespace thunder::fusion {

/// A tensor that stands in a larger one, of which it has these sizes from `start` on. A part may reach out of the
/// whole: what is outside is left out.
struct Placement {
  ir::ValueId value = ir::kNoValue;
  ir::Dims sizes;
  ir::Dims start;
  std::optional<std::size_t> missing_dim;  ///< a dimension of the whole that the tensor does not have

  /// Sizes or strides, given for each dimension of the tensor, for each dimension of the whole; `missing` is that of
  /// the missing dimension.
  [[nodiscard]] ir::Dims in_whole(ir::Dims dims, std::int64_t missing) const;
};

/// The parts that an operation joins; later ones hide earlier ones.
struct Placements {
  std::vector<Placement> parts;
  std::optional<double> fill;  ///< value of all elements outside of the parts; nullopt: there are none
};

/// The operators that `placements_of` knows.
[[nodiscard]] std::vector<std::string_view> placing_operators();
/// The parts that `cat`, `stack`, `pad` with a constant, `slice_backward`, `select_backward` or `slice_scatter` joins,
/// of tensors of the result's dtype that have elements; nullopt: it is none of these.
[[nodiscard]] std::optional<Placements> placements_of(const BoundSymbol& symbol, const Trace& trace);

}  // namespace thunder::fusion
