#include "tracer/python_function.h"

#include <algorithm>

#include "base/error.h"
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

const ir::ArgumentList& results_of(const PythonFunction& function, const ir::Trace& trace) {
  const auto calls = [&](const ir::BoundSymbol& symbol) {
    return symbol.op == python_function_operator() && &python_function_of(symbol, trace) == &function;
  };
  const auto symbol = std::ranges::find_if(trace.symbols, calls);
  THUNDER_CHECK(symbol != trace.symbols.end(), "tracer", "an autograd function that runs as Python is in the trace");
  return *symbol->results.at(0).get<ir::ArgumentList>();
}

const ir::Operator* set_apart_operator() {
  static const ir::Operator* const kRow =
      new ir::Operator(ir::parse_operator("prims::set_apart(Tensor[] values) -> Tensor[]", ir::CallStyle::kPrimitive));
  return kRow;
}

bool stands_alone(const ir::Operator& op) { return &op == python_function_operator() || &op == set_apart_operator(); }

}  // namespace thunder::tracer
