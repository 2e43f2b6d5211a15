#pragma once

#include <cstddef>

#include "ir/trace.h"

namespace thunder::operators {

/// Where an operator that copies to chosen rows of its first argument, in place, has its arguments.
struct RowCopy {
  std::size_t target = 0;
  std::size_t dim = 1;    ///< the dimension along which rows are chosen
  std::size_t index = 2;  ///< one number for each row that is copied
  std::size_t source = 3;
};
/// Null: the operator is none.
[[nodiscard]] const RowCopy* find_row_copy(const ir::Operator& op);

}  // namespace thunder::operators
