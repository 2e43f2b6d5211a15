#include "tracer/autograd_history.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <variant>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/symbol_values.h"
#include "tracer/operators.h"
#include "tracer/recording.h"
#include "tracer/symbols.h"
#include "tracer/tensor_table.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using torch::autograd::Edge;

/// `aten::index_select` -> `IndexSelectBackward0`, for operations of which autograd was not asked.
std::string node_name(const ir::Operator& op) {
  std::string name;
  bool capital = true;
  for (const char letter : op.name.substr(op.name.rfind(':') + 1)) {
    if (letter == '_') {
      capital = true;
      continue;
    }
    name.push_back(capital ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter);
    capital = false;
  }
  return name + "Backward0";
}

}  // namespace

void AutogradHistory::attach(const ir::BoundSymbol& symbol, const std::vector<at::Tensor>& arguments,
                             const std::vector<at::Tensor>& results, const std::string& name) {
  const ir::Trace& trace = recording_.trace();
  const auto node = autograd::make_node<TraceNode>(recording_, name.empty() ? node_name(*symbol.op) : name, symbol);
  std::vector<ir::ValueId> values;
  for (const ir::Argument& argument : symbol.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId id) {
      if (!std::holds_alternative<ir::ObjectType>(*trace.value(id).type)) values.push_back(id);
    });
  }
  std::vector<at::Tensor> tensors;  // numbers of the program are tensors here, and no values
  std::ranges::copy_if(arguments, std::back_inserter(tensors),
                       [](const at::Tensor& t) { return trace_impl(t) != nullptr; });
  THUNDER_CHECK(tensors.size() == values.size(), "tracer", symbol.op->name + ": one value for each tensor argument");
  torch::autograd::edge_list edges;
  for (const ir::ValueId id : node->inputs()) {
    const auto position = static_cast<std::size_t>(std::ranges::find(values, id) - values.begin());
    const bool is_tensor = position < values.size();
    edges.push_back(is_tensor ? torch::autograd::impl::gradient_edge(tensors[position]) : Edge());
    if (is_tensor) node->watch(id, tensors[position]);
  }
  node->set_next_edges(std::move(edges));
  const auto results_require_grad = [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && type->requires_grad;
  };
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && torch::autograd::isDifferentiableType(results[i].scalar_type()) &&
        results_require_grad(node->results()[i])) {
      torch::autograd::set_history(results[i], node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
    if (results[i].defined()) node->watch(node->results()[i], results[i]);
  }
}

void AutogradHistory::adopt(const at::Tensor& target, const at::Tensor& source, bool recorded) {
  if (source.requires_grad()) {
    if (recording_.level() == Level::kTop) {
      torch::autograd::impl::set_gradient_edge(target, torch::autograd::impl::gradient_edge(source));
    } else {
      target.set_requires_grad(true);
    }
  } else if (recorded && recording_.level() == Level::kTop && target.requires_grad()) {
    // Still differentiable, but the gradient of what it was computed from is zero.
    overwrite_history(target, edges_to({target}));
  }
}

at::Tensor AutogradHistory::overwriting(const at::Tensor& target, const at::Tensor& source) {
  const bool is_differentiable = c10::GradMode::is_enabled() && target.requires_grad() && source.requires_grad();
  if (!is_differentiable || recording_.level() != Level::kTop) return source;
  if (target.numel() != root_tensor_of(target).numel()) return source;
  at::Tensor result = tensors_.make(recording_.value_of(source));
  overwrite_history(result, edges_to({target}), torch::autograd::impl::gradient_edge(source));
  return result;
}

namespace {

/// Whether `.data` stands for the very value of a tensor that it was read from, by way of others.
bool shares_value_with_origin(const TraceState& state) {
  const auto is_data = [](const TraceState& tensor) { return tensor.view && tensor.view->is_data; };
  for (const TraceState* tensor = &state; is_data(*tensor);) {
    tensor = trace_impl(tensor->view->parent)->state().get();
    if (tensor->value == state.value) return true;
  }
  return false;
}

/// Whether a gradient of the symbol's results would come to `input`, if that required grad.
bool has_gradient_of(const ir::Trace& trace, const ir::BoundSymbol& symbol, ir::ValueId input) {
  const std::vector<ir::ValueId> arguments = ir::distinct_values(symbol.arguments);
  if (std::ranges::find(arguments, input) == arguments.end()) return false;
  return std::ranges::any_of(ir::flat_results(symbol), [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && type->requires_grad;
  });
}

}  // namespace

void AutogradHistory::mark_leaf(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  TraceState& state = *trace_impl(tensor)->state();
  ir::Trace& trace = recording_.trace();
  if (trace.tensor_type(state.value) == nullptr) return;
  const bool is_shared = shares_value_with_origin(state);
  if (trace.tensor_type(state.value)->requires_grad && !is_shared) return;
  ir::TensorType type = *trace.tensor_type(state.value);
  type.requires_grad = true;
  if (!is_shared && std::ranges::find(trace.inputs, state.value) != trace.inputs.end()) {
    if (std::ranges::any_of(trace.symbols,
                            [&](const auto& symbol) { return has_gradient_of(trace, symbol, state.value); })) {
      throw UserError(
          ErrorKind::kNotImplemented,
          "thunder.jit: not supported: requires_grad_() on an input that the function has used before; call "
          "it first");
    }
    trace.set_type(state.value, ir::make_type(std::move(type)));
    return;
  }
  // Nothing flows on to what the leaf was computed from.
  const ir::ValueId before = std::exchange(state.value, trace.add_value(ir::make_type(std::move(type))));
  recording_.builder.add_here(detach_symbol(before, state.value));
}

ir::ValueId AutogradHistory::without_grad(ir::ValueId value) {
  ir::Trace& trace = recording_.trace();
  const auto [place, is_new] = detached_.try_emplace(index_of(value), ir::kNoValue);
  if (!is_new) return place->second;
  ir::TensorType type = *trace.tensor_type(value);
  type.requires_grad = false;
  const ir::ValueId result = trace.add_value(ir::make_type(std::move(type)));
  recording_.builder.add_here(detach_symbol(value, result));
  return place->second = result;
}

}  // namespace thunder::tracer
