#include "transforms/opaque_backward.h"

#include <utility>

namespace thunder::transforms {
namespace {

OpaqueBackwardMaker& maker() {
  static OpaqueBackwardMaker made;
  return made;
}

}  // namespace

void set_opaque_backward_maker(OpaqueBackwardMaker made) { maker() = std::move(made); }

std::optional<c10::OperatorHandle> find_opaque_backward(const c10::OperatorHandle& op) {
  if (!maker() || op.operator_name().name.starts_with("aten::")) return std::nullopt;
  const auto name = maker()(op.operator_name());
  return name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
}

}  // namespace thunder::transforms
