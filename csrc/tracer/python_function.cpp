#include "tracer/python_function.h"

#include "ir/builder.h"

namespace thunder::tracer {

const ir::Operator* python_function_operator() {
  static const ir::Operator* const kRow = new ir::Operator(ir::parse_operator(
      "prims::python_function(Tensor[] values, Tensor?[] inputs, Tensor?[] saved, object function) -> Tensor[]",
      ir::CallStyle::kPrimitive));
  return kRow;
}

const PythonFunction& python_function_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(3).content);
  return *static_cast<const PythonFunction*>(trace.context()->owner_of(object, ir::ObjectKind::kPythonFunction).get());
}

const ir::Operator* set_apart_operator() {
  static const ir::Operator* const kRow =
      new ir::Operator(ir::parse_operator("prims::set_apart(Tensor[] values) -> Tensor[]", ir::CallStyle::kPrimitive));
  return kRow;
}

bool stands_alone(const ir::Operator& op) { return &op == python_function_operator() || &op == set_apart_operator(); }

}  // namespace thunder::tracer
