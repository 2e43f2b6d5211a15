#include "tracer/python_function.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/symbol_values.h"
#include "tracer/data_dependence.h"
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_node.h"
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
  return *static_cast<const PythonFunction*>(trace.context()->objects.at(object.index).owner.get());
}

const ir::Operator* set_apart_operator() {
  static const ir::Operator* const kRow =
      new ir::Operator(ir::parse_operator("prims::set_apart(Tensor[] values) -> Tensor[]", ir::CallStyle::kPrimitive));
  return kRow;
}

bool stands_alone(const ir::Operator& op) { return &op == python_function_operator() || &op == set_apart_operator(); }

at::Tensor Recorder::add_python_function(std::span<const at::Tensor> results, std::span<const at::Tensor> inputs,
                                         std::span<const at::Tensor> saved,
                                         std::shared_ptr<const PythonFunction> function) {
  const RecordTop recording(*this);
  const c10::AutoGradMode no_gradients(false);
  const auto differentiable = std::ranges::find_if(results, [](const at::Tensor& t) { return t.requires_grad(); });
  THUNDER_CHECK(differentiable != results.end(), "tracer", "an autograd function gives a history");
  const auto node = differentiable->grad_fn();
  for (const at::Tensor& result : results) trace_impl(result)->state()->adopted = node.get();
  const auto values_of = [this](std::span<const at::Tensor> tensors) {
    ir::ArgumentList values;
    for (const at::Tensor& tensor : tensors) {
      values.push_back(tensor.defined() ? ir::Argument(value_of(stand_in(tensor))) : ir::Argument());
    }
    return values;
  };
  ir::BoundSymbol symbol;
  symbol.op = python_function_operator();
  symbol.arguments = {values_of(results), values_of(inputs), values_of(saved),
                      ir::Argument(trace_.context()->add_object(
                          std::const_pointer_cast<PythonFunction>(std::move(function)), "autograd function"))};
  ir::ArgumentList made;
  std::vector<ir::ValueId>& by_result = adopted_[node.get()];
  by_result.resize(node->num_inputs(), ir::kNoValue);
  for (const at::Tensor& result : results) {
    TraceState& state = *trace_impl(result)->state();
    ir::TensorType type = *trace_.tensor_type(state.value);
    type.requires_grad = result.requires_grad();
    state.value = trace_.add_value(ir::make_type(std::move(type)));
    made.emplace_back(state.value);
    if (result.requires_grad()) by_result[result.output_nr()] = state.value;
  }
  symbol.results.emplace_back(std::move(made));
  if (locate) symbol.location = locate();
  add(std::move(symbol));
  at::Tensor stand_in = tensor_of(trace_impl(*differentiable)->state()->value);
  trace_impl(stand_in)->state()->adopted = node.get();
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(*differentiable);
  torch::autograd::impl::set_gradient_edge(stand_in, edge);
  kept_nodes_.push_back(edge);
  return stand_in;
}

bool Recorder::set_apart(const at::Tensor& trace_tensor) {
  settle();
  const ir::ValueId value = value_of(trace_tensor);
  if (root_of(*trace_impl(trace_tensor)->state()).writes != 0) return false;
  const auto maker = std::ranges::find_if(trace_.symbols, [&](const ir::BoundSymbol& symbol) {
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    return std::ranges::find(results, value) != results.end();
  });
  if (maker == trace_.symbols.end()) return false;
  if (stands_alone(*maker->op)) return true;
  const ir::ValueId made = trace_.add_value(trace_.value(value).type);
  for (ir::Argument& result : maker->results) {
    ir::for_each_value(result, [&](ir::ValueId& id) { id = id == value ? made : id; });
  }
  ir::BoundSymbol symbol;
  symbol.op = set_apart_operator();
  symbol.arguments = {ir::Argument(ir::ArgumentList{ir::Argument(made)})};
  symbol.results.emplace_back(ir::ArgumentList{ir::Argument(value)});
  symbol.location = maker->location;
  auto place = std::next(maker);
  // What is known of the shapes of an operation's results stands right behind it.
  while (place != trace_.symbols.end() && place->op == check_shape_operator()) {
    for (ir::Argument& argument : place->arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) { id = id == value ? made : id; });
    }
    ++place;
  }
  trace_.symbols.insert(place, std::move(symbol));
  realizer_.reset();  // it counts symbols
  return true;
}

}  // namespace thunder::tracer
