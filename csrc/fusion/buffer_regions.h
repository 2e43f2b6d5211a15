#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fusion/roles.h"
#include "ir/trace.h"

namespace thunder::fusion {

/// The region of a result that a tensor fills: it has these sizes from `start` on. A region may reach out of the
/// result: what is outside is left out.
struct BufferRegion {
  ir::ValueId value = ir::kNoValue;
  ir::Dims sizes;
  ir::Dims start;
  std::optional<std::size_t> missing_dim;  ///< a dimension of the result that the tensor does not have

  /// Sizes or strides, given for each dimension of the tensor, for each dimension of the result; `missing` is that of
  /// the missing dimension.
  [[nodiscard]] ir::Dims in_result(ir::Dims dims, std::int64_t missing) const;
};

/// The parts that an operation joins; later ones hide earlier ones.
struct BufferRegions {
  std::vector<BufferRegion> parts;
  std::optional<double> fill;  ///< value of all elements outside of the parts; nullopt: there are none
};

/// The operators that `buffer_regions_of` knows.
[[nodiscard]] std::vector<std::string_view> placing_operators();
/// The parts that `cat`, `stack`, `pad` with a constant, `slice_backward`, `select_backward` or `slice_scatter` joins,
/// of tensors of the result's dtype that have elements; nullopt: it is none of these.
[[nodiscard]] std::optional<BufferRegions> buffer_regions_of(const BoundSymbol& symbol, const Trace& trace);

}  // namespace thunder::fusion
