#include "operators/memory_order.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace thunder::operators {

bool reads_memory_in_order(const ir::Operator& op) {
  static constexpr std::array<std::string_view, 4> kNames{
      "aten::_weight_norm_interface", "aten::_weight_norm_interface_backward", "aten::native_group_norm",
      "aten::native_group_norm_backward"};
  return std::ranges::find(kNames, op.name) != kNames.end();
}

}  // namespace thunder::operators
