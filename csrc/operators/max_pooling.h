#pragma once

#include <cstddef>
#include <optional>

#include "ir/trace.h"

namespace thunder::operators {

/// Where an operator of max pooling in two dimensions, or of its derivative, has its arguments.
struct MaxPooling {
  std::size_t images = 0;
  std::size_t kernel = 1;
  std::size_t stride = 2;  ///< an empty list means that of the kernel
  std::size_t padding = 3;
  std::size_t dilation = 4;
  bool gives_places = false;              ///< besides the maxima: where they were
  std::optional<std::size_t> gradient{};  ///< the argument of a derivative that is given for the maxima
  std::optional<std::size_t> places{};    ///< the argument of a derivative that says where the maxima were
};
/// Null: the operator is no max pooling.
[[nodiscard]] const MaxPooling* find_max_pooling(const ir::Operator& op);

}  // namespace thunder::operators
