#include "tracer/custom_gradient.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/builder.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "tracer/backward_graph.h"
#include "tracer/operators.h"
#include "tracer/realizer.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

std::size_t maker_of(const ir::Trace& trace, ir::ValueId value) {
  const auto made = std::ranges::find_if(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    return std::ranges::find(results, value) != results.end();
  });
  return static_cast<std::size_t>(made - trace.symbols.begin());
}

}  // namespace

std::vector<ir::ValueId> free_values(const CustomGradient& gradient) {
  std::unordered_set<std::uint32_t> known{index_of(ir::kNoValue)};
  for (const ir::ValueId cotangent : gradient.cotangents) known.insert(index_of(cotangent));
  std::vector<ir::ValueId> result;
  const auto use = [&](ir::ValueId id) {
    if (known.insert(index_of(id)).second) result.push_back(id);
  };
  for (const ir::BoundSymbol& symbol : gradient.symbols) {
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, use);
    for (const ir::Argument& made : symbol.results) {
      ir::for_each_value(made, [&](ir::ValueId id) { known.insert(index_of(id)); });
    }
  }
  std::ranges::for_each(gradient.gradients, use);
  return result;
}

const ir::Operator* custom_gradient_operator() {
  static const ir::Operator* const kRow = new ir::Operator(
      ir::parse_operator("prims::custom_gradient(Tensor[] values, Tensor[] reads, object gradient) -> Tensor[]",
                         ir::CallStyle::kPrimitive));
  return kRow;
}

std::optional<ir::Trace> without_custom_gradients(const ir::Trace& trace) {
  const auto is_custom = [](const ir::BoundSymbol& symbol) { return symbol.op == custom_gradient_operator(); };
  if (std::ranges::none_of(trace.symbols, is_custom)) return std::nullopt;
  ir::Trace result = trace.empty_copy("drop_custom_gradients");
  ir::Substitution values(trace.value_count());
  for (ir::BoundSymbol symbol : trace.symbols) {
    values.apply(symbol);
    if (!is_custom(symbol)) {
      result.add(std::move(symbol));
      continue;
    }
    for_each_handed_on(symbol, [&](ir::ValueId from, ir::ValueId to) { values.set(from, to); });
  }
  values.apply(result.outputs);
  return result;
}

const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(2).content);
  return *static_cast<const CustomGradient*>(trace.context()->objects.at(object.index).owner.get());
}

ir::ValueId Recorder::value_of_edge(const torch::autograd::Edge& edge) {
  torch::autograd::Node* node = edge.function.get();
  if (const TraceNode* own = as_trace_node(node)) return own->results().at(edge.input_nr);
  if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) return value_of(leaf->variable);
  if (const auto* outside = dynamic_cast<OutsideNode*>(node)) return outside->value();
  for (const at::Tensor& input : inputs_) {
    if (input.grad_fn().get() == node) return value_of(input);
  }
  const auto found = adopted_.find(node);
  if (found != adopted_.end() && edge.input_nr < found->second.size()) return found->second[edge.input_nr];
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: not supported inside a jitted function: a gradient that reaches a tensor by " +
                      node->name() + ", which the trace does not know");
}

std::vector<at::Tensor> Recorder::with_siblings(const at::Tensor& tensor) const {
  std::vector<at::Tensor> results(tensor.grad_fn()->num_inputs());
  const auto place = [&](const at::Tensor& each) -> at::Tensor& { return results.at(each.output_nr()); };
  place(tensor) = tensor;
  if (results.size() > 1) {
    for (const at::Tensor& other : live_.with_node(tensor.grad_fn().get())) {
      const TraceState& state = *trace_impl(other)->state();
      const bool is_adopted = state.adopted == tensor.grad_fn().get();
      if (state.recorder == this && !is_adopted && !place(other).defined()) place(other) = other;
    }
  }
  std::erase_if(results, [](const at::Tensor& each) { return !each.defined(); });
  return results;
}

void Recorder::adopt_gradient(const at::Tensor& tensor) {
  const auto node = tensor.grad_fn();
  if (!node || trace_impl(tensor)->state()->adopted == node.get() || !is_foreign(node.get())) return;
  const RecordTop recording(*this);
  auto gradient = std::make_shared<CustomGradient>();
  const std::vector<at::Tensor> results = with_siblings(tensor);
  std::vector<ir::ValueId> values;
  BackwardWalk walk;
  for (const at::Tensor& result : results) {
    TraceState& state = *trace_impl(result)->state();
    state.adopted = node.get();
    values.push_back(state.value);
    ir::TensorType type = bridge::type_of(result);
    type.requires_grad = false;
    walk.cotangents.push_back(add_tensor(ir::make_type(std::move(type)), {}, /*is_input=*/false));
    gradient->cotangents.push_back(trace_impl(walk.cotangents.back())->state()->value);
    walk.roots.emplace_back(node, static_cast<std::uint32_t>(result.output_nr()));
  }
  std::size_t begin = trace_.symbols.size();
  marks_.push_back(&begin);
  walk.run_hooks = false;  // see record_hooks
  walk.stops_at = [&](torch::autograd::Node& reached) {
    return &reached != node.get() && (!is_foreign(&reached) || adopted_.contains(&reached));
  };
  const std::vector<at::Tensor> gradients = walk.run();
  for (const at::Tensor& each : gradients) gradient->gradients.push_back(value_of(each));
  marks_.pop_back();
  gradient->symbols = cut(begin);
  // What this records belongs to the trace: an input that was written to has a gradient of its own.
  for (const torch::autograd::Edge& edge : walk.stopped) gradient->inputs.push_back(value_of_edge(edge));
  gradient->reads = free_values(*gradient);

  // The tensors keep their history, for gradients that are taken inside; the trace has it from here on too.
  const std::vector<ir::ValueId> with_gradient = add_custom_gradient(values, std::move(gradient));
  std::vector<ir::ValueId>& by_result = adopted_[node.get()];
  by_result.resize(node->num_inputs(), ir::kNoValue);
  for (std::size_t i = 0; i < results.size(); ++i) {
    trace_impl(results[i])->state()->value = with_gradient[i];
    by_result[results[i].output_nr()] = with_gradient[i];
  }
  kept_nodes_.push_back(walk.roots.front());
}

ir::ValueId Recorder::with_gradient_of(ir::ValueId value, ir::ValueId owner) {
  auto gradient = std::make_shared<CustomGradient>();
  gradient->cotangents = {trace_.add_value(trace_.value(value).type)};
  gradient->inputs.push_back(owner);
  gradient->gradients = gradient->cotangents;
  return add_custom_gradient({value}, std::move(gradient)).front();
}

ir::BoundSymbol Recorder::make_custom_gradient(const std::vector<ir::ValueId>& values,
                                               const std::vector<ir::ValueId>& results,
                                               std::shared_ptr<CustomGradient> gradient) {
  ir::BoundSymbol symbol;
  symbol.op = custom_gradient_operator();
  ir::ArgumentList reads(gradient->reads.begin(), gradient->reads.end());
  reads.insert(reads.end(), gradient->inputs.begin(), gradient->inputs.end());
  symbol.arguments = {ir::Argument(ir::ArgumentList(values.begin(), values.end())), ir::Argument(std::move(reads)),
                      ir::Argument(trace_.context()->add_object(std::move(gradient), "custom gradient"))};
  symbol.results.emplace_back(ir::ArgumentList(results.begin(), results.end()));
  return symbol;
}

std::vector<ir::ValueId> Recorder::add_custom_gradient(const std::vector<ir::ValueId>& values,
                                                       std::shared_ptr<CustomGradient> gradient) {
  std::vector<ir::ValueId> results;
  for (const ir::ValueId value : values) {
    ir::TensorType type = *trace_.tensor_type(value);
    type.requires_grad = true;
    results.push_back(trace_.add_value(ir::make_type(std::move(type))));
  }
  ir::BoundSymbol symbol = make_custom_gradient(values, results, std::move(gradient));
  if (locate) symbol.location = locate();
  add(std::move(symbol));
  return results;
}

ir::ValueId Recorder::insert_custom_gradient(ir::ValueId hooked, ir::ValueId value,
                                             std::shared_ptr<CustomGradient> gradient) {
  const std::size_t place = maker_of(trace_, value);
  THUNDER_CHECK(place < trace_.symbols.size(), "tracer", "a hooked tensor is made by the trace");
  for (const ir::ValueId read : gradient->reads) {
    const bool is_input = std::ranges::find(trace_.inputs, read) != trace_.inputs.end();
    if (read == hooked || is_input || maker_of(trace_, read) <= place) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "Tensor.register_hook: expected a hook that reads tensors made before the one it is registered on, "
                    "got one that reads a later one; compute that one before");
  }
  const ir::ValueId made = trace_.add_value(trace_.value(value).type);
  for (ir::Argument& result : trace_.symbols[place].results) {
    ir::for_each_value(result, [&](ir::ValueId& id) { id = id == value ? made : id; });
  }
  gradient->inputs = {made};
  ir::BoundSymbol symbol = make_custom_gradient({made}, {value}, std::move(gradient));
  for (ir::Argument& argument : symbol.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId& id) { id = id == hooked ? made : id; });
  }
  symbol.location = trace_.symbols[place].location;
  trace_.symbols.insert(trace_.symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1, std::move(symbol));
  return made;
}

void Recorder::record_hook(torch::autograd::FunctionPreHook& hook, const std::vector<ir::ValueId>& hooked,
                           std::vector<ir::ValueId>& values) {
  const std::size_t begin = trace_.symbols.size();
  torch::autograd::variable_list cotangents(hooked.size());
  for (std::size_t i = 0; i < hooked.size(); ++i) {
    const ir::TensorType* type = hooked[i] == ir::kNoValue ? nullptr : trace_.tensor_type(hooked[i]);
    if (type == nullptr || !type->requires_grad) continue;
    ir::TensorType plain = *type;
    plain.requires_grad = false;
    plain.storage_offset = 0;
    cotangents[i] = add_tensor(ir::make_type(std::move(plain)), {}, /*is_input=*/false);
  }
  const torch::autograd::variable_list gradients = hook(cotangents);
  std::size_t i = 0;  // a hook sees and changes one of the gradients
  while (i < hooked.size() && (!cotangents[i].defined() || gradients[i].is_same(cotangents[i]))) ++i;
  auto gradient = std::make_shared<CustomGradient>();
  if (i < hooked.size()) {
    gradient->cotangents = {value_of(cotangents[i])};
    gradient->gradients = {value_of(replace_real_tensor(gradients[i]))};
  }
  gradient->symbols = cut(begin);
  gradient->reads = free_values(*gradient);
  // Constants need nothing.
  const auto constants = trace_.symbols.begin() + static_cast<std::ptrdiff_t>(begin);
  std::rotate(trace_.symbols.begin(), constants, trace_.symbols.end());
  if (i < hooked.size()) values[i] = insert_custom_gradient(hooked[i], values[i], std::move(gradient));
}

void Recorder::record_hooks(torch::autograd::Node& node) {
  settle();
  const TraceNode* own = as_trace_node(&node);
  std::vector<ir::ValueId> hooked = own != nullptr ? own->results() : adopted_[&node];
  hooked.resize(node.num_inputs(), ir::kNoValue);
  std::vector<ir::ValueId> values = hooked;  // behind which the next hook goes: the first is the nearest to the users
  const RecordTop recording(*this);
  const c10::AutoGradMode no_gradients(false);
  for (const auto& hook : node.tensor_pre_hooks()) record_hook(*hook, hooked, values);
  realizer_.reset();  // it counts symbols
}

}  // namespace thunder::tracer
