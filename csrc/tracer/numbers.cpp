#include "tracer/numbers.h"

#include <string_view>
#include <variant>

#include "ir/builder.h"

namespace thunder::tracer {
namespace {

const ir::Operator* make_primitive(std::string_view schema) {
  return new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
}

}  // namespace

const ir::Operator* item_operator() {
  static const ir::Operator* const kRow = make_primitive("prims::item(Tensor value) -> Scalar");
  return kRow;
}

const ir::Operator* number_operator() {
  static const ir::Operator* const kRow =
      make_primitive("prims::number(str operation, Scalar left, Scalar right) -> Scalar");
  return kRow;
}

bool is_number(const ir::Trace& trace, ir::ValueId id) {
  return std::holds_alternative<ir::ScalarKind>(*trace.value(id).type);
}

}  // namespace thunder::tracer
