#include "tracer/adopted_gradients.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "ir/symbol_values.h"
#include "tracer/at_other_sizes.h"
#include "tracer/autocast.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/python_function.h"
#include "tracer/recording.h"
#include "tracer/recording_scopes.h"
#include "tracer/tensor_table.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

/// A backward runs after the call, which can no longer choose another program where a number is another one.
void require_no_checks(std::span<const ir::BoundSymbol> backward) {
  const auto is_checking = [](const ir::BoundSymbol& symbol) { return is_check(*symbol.op); };
  if (std::ranges::none_of(backward, is_checking)) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: not supported inside a jitted function: a backward that looks at a number which other "
                  "calls have another one for");
}

}  // namespace

ir::ValueId AdoptedGradients::value_of_edge(const torch::autograd::Edge& edge) {
  torch::autograd::Node* node = edge.function.get();
  if (const TraceNode* own = as_trace_node(node)) {
    const ir::ValueId value = own->results().at(edge.input_nr);
    const auto handed_on = handed_on_.find(index_of(value));
    return handed_on != handed_on_.end() ? handed_on->second : value;
  }
  if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
    return recording_.value_of(leaf->variable);
  if (const auto* outside = dynamic_cast<OutsideNode*>(node)) return outside->value();
  for (const at::Tensor& input : tensors_.inputs()) {
    if (input.grad_fn().get() == node) return recording_.value_of(input);
  }
  const auto found = adopted_.find(node);
  if (found != adopted_.end() && edge.input_nr < found->second.size()) return found->second[edge.input_nr];
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: not supported inside a jitted function: a gradient that reaches a tensor by " +
                      node->name() + ", which the trace does not know");
}

std::vector<at::Tensor> AdoptedGradients::with_siblings(const at::Tensor& tensor) const {
  std::vector<at::Tensor> results(tensor.grad_fn()->num_inputs());
  const auto place = [&](const at::Tensor& each) -> at::Tensor& { return results.at(each.output_nr()); };
  place(tensor) = tensor;
  if (results.size() > 1) {
    for (const at::Tensor& other : recording_.live.with_node(tensor.grad_fn().get())) {
      const TraceState& state = *trace_impl(other)->state();
      const bool is_adopted = state.adopted == tensor.grad_fn().get();
      if (state.recorder == &recording_ && !is_adopted && !place(other).defined()) place(other) = other;
    }
  }
  std::erase_if(results, [](const at::Tensor& each) { return !each.defined(); });
  return results;
}

void AdoptedGradients::adopt(const at::Tensor& tensor) {
  const auto node = tensor.grad_fn();
  if (!node || trace_impl(tensor)->state()->adopted == node.get() || !is_foreign(node.get())) return;
  const RecordTop recording(recording_);
  const std::unique_ptr<GradientFollower> follower = follow_gradient(recording_);
  auto gradient = std::make_shared<CustomGradient>();
  const std::vector<at::Tensor> results = with_siblings(tensor);
  std::vector<ir::ValueId> values;
  autograd::BackwardWalk walk;
  for (const at::Tensor& result : results) {
    TraceState& state = *trace_impl(result)->state();
    state.adopted = node.get();
    values.push_back(state.value);
    ir::TensorType type = follower == nullptr ? bridge::type_of(result) : follower->type_of(result);
    type.requires_grad = false;
    walk.cotangents.push_back(tensors_.add(ir::make_type(std::move(type))));
    if (follower != nullptr) follower->add_cotangent(result, walk.cotangents.back());
    gradient->cotangents.push_back(trace_impl(walk.cotangents.back())->state()->value);
    walk.roots.emplace_back(node, static_cast<std::uint32_t>(result.output_nr()));
  }
  const TraceBuilder::Mark begin(recording_.builder);
  walk.run_hooks = false;  // see record_hooks
  walk.stops_at = [&](torch::autograd::Node& reached) {
    return &reached != node.get() && (!is_foreign(&reached) || adopted_.contains(&reached));
  };
  walk.has_sizes = sizes_at_hand(recording_);
  const std::vector<at::Tensor> gradients = [&] {
    const WithoutAutocast outside;
    return walk.run();
  }();
  for (const at::Tensor& each : gradients) gradient->gradients.push_back(recording_.value_of(each));
  gradient->symbols = recording_.builder.cut(begin.position());
  require_no_checks(gradient->symbols);
  // Symbols that this records belong to the trace: an input that was written to has a gradient of its own.
  for (const torch::autograd::Edge& edge : walk.stopped) gradient->inputs.push_back(value_of_edge(edge));
  gradient->reads = free_values(*gradient);
  for (const at::Tensor& read : recording_.live.with_values(gradient->reads)) {
    if (!read.is_inference()) read_[node.get()].emplace_back(read);
  }

  // The tensors keep their history, for gradients that are taken inside; the trace has it from here on too.
  const std::vector<ir::ValueId> with_gradient = add(values, gradient);
  if (follower != nullptr) follower->finish(results, values, gradients, *gradient, {});
  std::vector<ir::ValueId>& by_result = adopted_[node.get()];
  by_result.resize(node->num_inputs(), ir::kNoValue);
  for (std::size_t i = 0; i < results.size(); ++i) {
    trace_impl(results[i])->state()->value = with_gradient[i];
    by_result[results[i].output_nr()] = with_gradient[i];
  }
  kept_nodes_.push_back(walk.roots.front());
}

ir::ValueId AdoptedGradients::with_gradient_of(ir::ValueId value, ir::ValueId owner) {
  auto gradient = std::make_shared<CustomGradient>();
  gradient->cotangents = {recording_.builder.trace().add_value(recording_.builder.trace().value(value).type)};
  gradient->inputs.push_back(owner);
  gradient->gradients = gradient->cotangents;
  return add({value}, std::move(gradient)).front();
}

ir::BoundSymbol AdoptedGradients::make_symbol(const std::vector<ir::ValueId>& values,
                                              const std::vector<ir::ValueId>& results,
                                              std::shared_ptr<CustomGradient> gradient) {
  ir::BoundSymbol symbol;
  symbol.op = custom_gradient_operator();
  ir::ArgumentList reads(gradient->reads.begin(), gradient->reads.end());
  reads.insert(reads.end(), gradient->inputs.begin(), gradient->inputs.end());
  symbol.arguments = {ir::Argument(ir::ArgumentList(values.begin(), values.end())), ir::Argument(std::move(reads)),
                      ir::Argument(recording_.builder.trace().context()->add_object(ir::ObjectKind::kCustomGradient,
                                                                                    std::move(gradient)))};
  symbol.results.emplace_back(ir::ArgumentList(results.begin(), results.end()));
  return symbol;
}

std::vector<ir::ValueId> AdoptedGradients::add(const std::vector<ir::ValueId>& values,
                                               std::shared_ptr<CustomGradient> gradient) {
  std::vector<ir::ValueId> results;
  for (const ir::ValueId value : values) {
    ir::TensorType type = *recording_.builder.trace().tensor_type(value);
    type.requires_grad = true;
    results.push_back(recording_.builder.trace().add_value(ir::make_type(std::move(type))));
  }
  recording_.builder.add_here(make_symbol(values, results, std::move(gradient)));
  return results;
}

ir::ValueId AdoptedGradients::insert(ir::ValueId hooked, ir::ValueId value, std::shared_ptr<CustomGradient> gradient) {
  const std::size_t place = recording_.builder.maker_of(value);
  THUNDER_CHECK(place < recording_.builder.trace().symbols.size(), "tracer", "a hooked tensor is made by the trace");
  for (const ir::ValueId read : gradient->reads) {
    const bool is_input =
        std::ranges::find(recording_.builder.trace().inputs, read) != recording_.builder.trace().inputs.end();
    if (read == hooked || is_input || recording_.builder.maker_of(read) <= place) continue;
    throw UserError(ErrorKind::kNotImplemented,
                    "Tensor.register_hook: expected a hook that reads tensors made before the one it is registered on, "
                    "got one that reads a later one; compute that one before");
  }
  const ir::ValueId made = recording_.builder.rename_result(place, value);
  gradient->inputs = {made};
  ir::BoundSymbol symbol = make_symbol({made}, {value}, std::move(gradient));
  for (ir::Argument& argument : symbol.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId& id) { id = id == hooked ? made : id; });
  }
  symbol.location = recording_.builder.trace().symbols[place].location;
  recording_.builder.insert(place + 1, std::move(symbol));
  return made;
}

void AdoptedGradients::record_hook(torch::autograd::FunctionPreHook& hook, const std::vector<ir::ValueId>& hooked,
                                   std::vector<ir::ValueId>& values) {
  const std::size_t begin = recording_.builder.trace().symbols.size();
  torch::autograd::variable_list cotangents(hooked.size());
  for (std::size_t i = 0; i < hooked.size(); ++i) {
    const ir::TensorType* type = recording_.builder.trace().tensor_type(hooked[i]);
    if (type == nullptr || !type->requires_grad) continue;
    ir::TensorType plain = *type;
    plain.requires_grad = false;
    plain.storage_offset = 0;
    cotangents[i] = tensors_.add(ir::make_type(std::move(plain)));
  }
  const torch::autograd::variable_list gradients = hook(cotangents);
  std::size_t i = 0;  // a hook sees and changes one of the gradients
  while (i < hooked.size() && (!cotangents[i].defined() || gradients[i].is_same(cotangents[i]))) ++i;
  auto gradient = std::make_shared<CustomGradient>();
  if (i < hooked.size()) {
    gradient->cotangents = {recording_.value_of(cotangents[i])};
    gradient->gradients = {recording_.value_of(recording_.trace_tensor_of(gradients[i]))};
  }
  gradient->symbols = recording_.builder.cut(begin);
  require_no_checks(gradient->symbols);
  gradient->reads = free_values(*gradient);
  // Constants need nothing.
  recording_.builder.move_to_front(begin);
  if (i < hooked.size()) values[i] = insert(hooked[i], values[i], std::move(gradient));
}

void AdoptedGradients::record_hooks(torch::autograd::Node& node) {
  recording_.builder.settle();
  const TraceNode* own = as_trace_node(&node);
  std::vector<ir::ValueId> hooked = own != nullptr ? own->results() : values_of(node);
  if (std::ranges::any_of(hooked, [this](ir::ValueId value) { return is_passed_by(value); })) {
    throw UserError(ErrorKind::kNotImplemented,
                    "Tensor.register_hook: expected a tensor outside of a checkpoint, got one that a checkpoint makes, "
                    "or gives; register it on what is computed from that");
  }
  hooked.resize(node.num_inputs(), ir::kNoValue);
  std::vector<ir::ValueId> values = hooked;  // behind which the next hook goes: the first is the nearest to the users
  const RecordTop recording(recording_);
  const WithoutAutocast outside;
  const c10::AutoGradMode no_gradients(false);
  for (const auto& hook : node.tensor_pre_hooks()) record_hook(*hook, hooked, values);
}

at::Tensor AdoptedGradients::add_python_function(std::span<const at::Tensor> results,
                                                 std::span<const at::Tensor> inputs, std::span<const at::Tensor> saved,
                                                 std::shared_ptr<const PythonFunction> function) {
  const RecordTop recording(recording_);
  const c10::AutoGradMode no_gradients(false);
  const auto differentiable = std::ranges::find_if(results, [](const at::Tensor& t) { return t.requires_grad(); });
  THUNDER_CHECK(differentiable != results.end(), "tracer", "an autograd function gives a history");
  const auto node = differentiable->grad_fn();
  for (const at::Tensor& result : results) trace_impl(result)->state()->adopted = node.get();
  const auto values_of = [this](std::span<const at::Tensor> tensors) {
    ir::ArgumentList values;
    for (const at::Tensor& tensor : tensors) {
      values.push_back(tensor.defined() ? ir::Argument(recording_.value_of(recording_.trace_tensor_of(tensor)))
                                        : ir::Argument());
    }
    return values;
  };
  ir::BoundSymbol symbol;
  symbol.op = python_function_operator();
  symbol.arguments = {
      values_of(results), values_of(inputs), values_of(saved),
      ir::Argument(recording_.builder.trace().context()->add_object(
          ir::ObjectKind::kPythonFunction, std::const_pointer_cast<PythonFunction>(std::move(function))))};
  ir::ArgumentList made;
  std::vector<ir::ValueId>& by_result = adopted_[node.get()];
  by_result.resize(node->num_inputs(), ir::kNoValue);
  for (const at::Tensor& result : results) {
    TraceState& state = *trace_impl(result)->state();
    ir::TensorType type = *recording_.builder.trace().tensor_type(state.value);
    type.requires_grad = result.requires_grad();
    state.value = recording_.builder.trace().add_value(ir::make_type(std::move(type)));
    made.emplace_back(state.value);
    if (result.requires_grad()) by_result[result.output_nr()] = state.value;
  }
  symbol.results.emplace_back(std::move(made));
  recording_.builder.add_here(std::move(symbol));
  at::Tensor given = tensors_.make(trace_impl(*differentiable)->state()->value);
  trace_impl(given)->state()->adopted = node.get();
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(*differentiable);
  torch::autograd::impl::set_gradient_edge(given, edge);
  kept_nodes_.push_back(edge);
  return given;
}

std::vector<ir::ValueId> AdoptedGradients::values_of(const torch::autograd::Node& node) const {
  const auto found = adopted_.find(&node);
  return found == adopted_.end() ? std::vector<ir::ValueId>() : found->second;
}

bool AdoptedGradients::reads_written(const torch::autograd::Node& node) const {
  const auto found = read_.find(&node);
  return found != read_.end() && std::ranges::any_of(found->second, &ReadMemory::is_written);
}

bool AdoptedGradients::set_apart(const at::Tensor& trace_tensor) {
  recording_.builder.settle();
  const ir::ValueId value = recording_.value_of(trace_tensor);
  if (is_written(trace_tensor) || is_passed_by(value)) return false;
  ir::Trace& trace = recording_.trace();
  std::size_t position = recording_.builder.maker_of(value);
  if (position == trace.symbols.size()) return false;
  if (stands_alone(*trace.symbols[position].op)) return true;
  const ir::ValueId made = recording_.builder.rename_result(position, value);
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
  recording_.builder.insert(position, std::move(symbol));
  return true;
}

}  // namespace thunder::tracer
