#include "operators/row_copies.h"

namespace thunder::operators {

const RowCopy* find_row_copy(const ir::Operator& op) {
  static constexpr RowCopy kPlaces;
  return op.name == "aten::index_copy_" ? &kPlaces : nullptr;
}

}  // namespace thunder::operators
