// How trace tensors get the history that eager would give them, and where rewritten parts go.
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
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/symbols.h"
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

void Recorder::attach_node(const ir::BoundSymbol& symbol, const std::vector<at::Tensor>& arguments,
                           const std::vector<at::Tensor>& results, const std::string& name) {
  const auto node = make_node<TraceNode>(*this, name.empty() ? node_name(*symbol.op) : name, symbol);
  std::vector<ir::ValueId> values;
  for (const ir::Argument& argument : symbol.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId id) {
      if (!std::holds_alternative<ir::ObjectType>(*trace_.value(id).type)) values.push_back(id);
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
    const ir::TensorType* type = trace_.tensor_type(id);
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

void Recorder::adopt_history(const at::Tensor& target, const at::Tensor& source, bool recorded) {
  if (source.requires_grad()) {
    if (level_ == Level::kTop) {
      torch::autograd::impl::set_gradient_edge(target, torch::autograd::impl::gradient_edge(source));
    } else {
      target.set_requires_grad(true);
    }
  } else if (recorded && level_ == Level::kTop && target.requires_grad()) {
    // Still differentiable, but the gradient of what it was computed from is zero.
    overwrite_history(target, edges_to({target}));
  }
}

at::Tensor Recorder::tensor_of(ir::ValueId value) {
  auto state = std::make_shared<TraceState>();
  state->recorder = this;
  state->value = value;
  return make_trace_tensor(*trace_.tensor_type(value), std::move(state));
}

at::Tensor Recorder::real_behind(const at::Tensor& trace_tensor) const {
  const auto& state = trace_impl(trace_tensor)->state();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (trace_impl(inputs_[i])->state() == state) return real_inputs_[i];
  }
  return {};
}

void Recorder::mark_leaf(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  TraceState& state = *trace_impl(tensor)->state();
  if (trace_.tensor_type(state.value) == nullptr || trace_.tensor_type(state.value)->requires_grad) return;
  ir::TensorType type = *trace_.tensor_type(state.value);
  type.requires_grad = true;
  if (std::ranges::find(trace_.inputs, state.value) != trace_.inputs.end()) {
    trace_.set_type(state.value, ir::make_type(std::move(type)));
    return;
  }
  // Nothing flows on to what the leaf was computed from.
  const ir::ValueId before = std::exchange(state.value, trace_.add_value(ir::make_type(std::move(type))));
  ir::BoundSymbol symbol = detach_symbol(before, state.value);
  if (locate) symbol.location = locate();
  add(std::move(symbol));
}

ir::ValueId Recorder::without_grad(ir::ValueId value) {
  const auto [place, is_new] = detached_.try_emplace(index_of(value), ir::kNoValue);
  if (!is_new) return place->second;
  ir::TensorType type = *trace_.tensor_type(value);
  type.requires_grad = false;
  const ir::ValueId result = trace_.add_value(ir::make_type(std::move(type)));
  ir::BoundSymbol symbol = detach_symbol(value, result);
  if (locate) symbol.location = locate();
  add(std::move(symbol));
  return place->second = result;
}

void Recorder::replace(ir::ValueId result, std::vector<ir::BoundSymbol> symbols) {
  replacements_.emplace(index_of(result), std::move(symbols));
}

void Recorder::settle() {
  if (replacements_.empty()) return;
  std::vector<ir::BoundSymbol> old = std::exchange(trace_.symbols, {});
  facts_.reset();
  std::vector<std::size_t> shifts(marks_.size());
  for (std::size_t i = 0; i < old.size(); ++i) {
    for (std::size_t m = 0; m < marks_.size(); ++m) {
      if (*marks_[m] == i) shifts[m] = trace_.symbols.size();
    }
    std::uint32_t first = index_of(ir::kNoValue);
    for (const ir::ValueId id : ir::flat_results(old[i])) {
      if (first == index_of(ir::kNoValue)) first = index_of(id);
    }
    const auto found = replacements_.find(first);
    if (found == replacements_.end()) {
      trace_.symbols.push_back(std::move(old[i]));
      continue;
    }
    for (ir::BoundSymbol& symbol : found->second) trace_.symbols.push_back(std::move(symbol));
  }
  for (std::size_t m = 0; m < marks_.size(); ++m) {
    *marks_[m] = *marks_[m] >= old.size() ? trace_.symbols.size() : shifts[m];
  }
  replacements_.clear();
  realizer_.reset();  // it counts symbols
}

}  // namespace thunder::tracer
