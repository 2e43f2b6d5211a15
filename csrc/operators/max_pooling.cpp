#include "operators/max_pooling.h"

#include <algorithm>
#include <string_view>

namespace thunder::operators {
namespace {

struct Row {
  std::string_view name;
  MaxPooling places;
};

constexpr Row kRows[] = {
    {"aten::max_pool2d", {}},
    {"aten::max_pool2d_with_indices", {.gives_places = true}},
    {"aten::max_pool2d_with_indices_backward",
     {.images = 1, .kernel = 2, .stride = 3, .padding = 4, .dilation = 5, .gradient = 0, .places = 7}},
};

}  // namespace

const MaxPooling* find_max_pooling(const ir::Operator& op) {
  const auto* row = std::ranges::find(kRows, op.name, &Row::name);
  return row == std::end(kRows) || !op.overload.empty() ? nullptr : &row->places;
}

}  // namespace thunder::operators
