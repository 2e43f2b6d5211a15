#include "tracer/python_function.h"

#include <utility>

#include "ir/builder.h"
#include "ir/symbol_values.h"
#include "tracer/data_dependence.h"
#include "tracer/recorder.h"
#include "tracer/trace_tensor.h"

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

bool set_apart(Recorder& recorder, const at::Tensor& trace_tensor) {
  recorder.builder.settle();
  const ir::ValueId value = recorder.value_of(trace_tensor);
  if (is_written(trace_tensor) || recorder.gradients.is_passed_by(value)) return false;
  ir::Trace& trace = recorder.trace();
  std::size_t position = recorder.builder.maker_of(value);
  if (position == trace.symbols.size()) return false;
  if (stands_alone(*trace.symbols[position].op)) return true;
  const ir::ValueId made = recorder.builder.rename_result(position, value);
  ir::BoundSymbol symbol;
  symbol.op = set_apart_operator();
  symbol.arguments = {ir::Argument(ir::ArgumentList{ir::Argument(made)})};
  symbol.results.emplace_back(ir::ArgumentList{ir::Argument(value)});
  symbol.location = trace.symbols[position].location;
  // Checks of the shapes of an operation's results stand right behind it.
  for (++position; position < trace.symbols.size() && trace.symbols[position].op == check_shape_operator();
       ++position) {
    for (ir::Argument& argument : trace.symbols[position].arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) { id = id == value ? made : id; });
    }
  }
  recorder.builder.insert(position, std::move(symbol));
  return true;
}

}  // namespace thunder::tracer
