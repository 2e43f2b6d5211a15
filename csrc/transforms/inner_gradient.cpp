#include "transforms/inner_gradient.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "tracer/aside_of_layers.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbols.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"
#include "transforms/replay.h"
#include "transforms/saved_values.h"

namespace thunder::transforms {

using torch::autograd::Edge;

/// The derivative of one operation of the program, as far as it was found.
struct InnerGradient::Derivation {
  OperatorReplay* replay = nullptr;
  std::vector<ir::ValueId> values;  ///< replay value -> value of the trace; kNoValue: not of the forward, or not made
  std::vector<ir::BoundSymbol> placed;  ///< the forward half, as it stands in the trace
  bool is_placed = false;
  Edges edges;  ///< edges of values of the forward half, when second derivatives were asked for
};

/// The second half, as it goes into the trace.
struct InnerGradient::Half {
  std::vector<ir::BoundSymbol> symbols;
  std::vector<ir::ValueId> gradients;  ///< one for each input of the operation; kNoValue: zero
};

// A node owns its derivation, whose edges lead back to the node: they are released here.
InnerGradient::~InnerGradient() {
  std::vector<Edges> released;
  for (const std::weak_ptr<Derivation>& derivation : derivations_) {
    if (const auto living = derivation.lock()) released.push_back(std::exchange(living->edges, {}));
  }
}

InnerGradient::Derivation& InnerGradient::derivation_of(tracer::TraceNode& node) {
  if (node.derivation) return *static_cast<Derivation*>(node.derivation.get());
  auto made = std::make_shared<Derivation>();
  const tracer::SuspendRecording of_the_program;
  made->replay = &replays_.find(node.symbol(), node.inputs(), recorder_.trace());
  OperatorReplay& replay = *made->replay;
  made->values.assign(replay.trace().value_count(), ir::kNoValue);
  for (std::size_t i = 0; i < node.inputs().size(); ++i) made->values[index_of(replay.inputs()[i])] = node.inputs()[i];
  for (std::size_t i = 0; i < node.results().size(); ++i) {
    const ir::ValueId result = replay.results()[i];
    if (result == ir::kNoValue) continue;
    ir::ValueId& value = made->values[index_of(result)];
    if (value == ir::kNoValue) value = node.results()[i];
  }
  node.derivation = made;
  derivations_.push_back(made);
  return *made;
}

template <typename Slot>
ir::BoundSymbol InnerGradient::copy(const ir::BoundSymbol& symbol, const ir::Trace& from,
                                    const ir::SourceLocation& location, Slot&& slot) {
  ir::BoundSymbol copied = symbol;
  copied.location = location;
  for (ir::Argument& argument : copied.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId& id) { id = slot(id); });
  }
  for (ir::Argument& result : copied.results) {
    ir::for_each_value(result, [&](ir::ValueId& id) {
      ir::ValueId& made = slot(id);
      if (made == ir::kNoValue) made = recorder_.trace().add_value(from.value(id).type);
      id = made;
    });
  }
  return copied;
}

void InnerGradient::place_forward(tracer::TraceNode& node, Derivation& derivation) {
  if (std::exchange(derivation.is_placed, true)) return;
  const ir::Trace& replay = derivation.replay->trace();
  const auto symbols = std::span(replay.symbols).first(derivation.replay->forward_end());
  std::unordered_map<std::uint32_t, bool> requires_grad;
  for (const ir::ValueId input : derivation.replay->inputs()) {
    const ir::TensorType* type = replay.tensor_type(input);
    requires_grad[index_of(input)] = type != nullptr && type->requires_grad;
  }
  mark_differentiable(replay, symbols, requires_grad);
  const auto slot = [&](ir::ValueId id) -> ir::ValueId& { return derivation.values[index_of(id)]; };
  for (const ir::BoundSymbol& symbol : symbols) {
    derivation.placed.push_back(copy(symbol, replay, node.symbol().location, slot));
  }
  for (const auto& [value, flag] : requires_grad) {
    const ir::ValueId id = derivation.values[value];
    if (!flag || id == ir::kNoValue || recorder_.trace().tensor_type(id)->requires_grad) continue;
    ir::TensorType type = *recorder_.trace().tensor_type(id);
    type.requires_grad = true;
    recorder_.trace().set_type(id, ir::make_type(std::move(type)));
  }
  for (std::size_t i = 0; i < node.results().size(); ++i) {
    if (node.results()[i] == ir::kNoValue) continue;
    const ir::ValueId value = slot(derivation.replay->results()[i]);
    if (value == node.results()[i]) continue;
    // An argument handed through, or one value as two results.
    ir::BoundSymbol alias = tracer::alias_symbol(value, node.results()[i]);
    alias.location = node.symbol().location;
    derivation.placed.push_back(std::move(alias));
  }
  for (const ir::ValueId result : node.results()) {
    if (result == ir::kNoValue) continue;
    recorder_.builder.replace(result, derivation.placed);
    return;
  }
}

void InnerGradient::connect(const ir::BoundSymbol& symbol, Edges& edges) {
  std::unordered_map<std::uint32_t, bool> requires_grad;
  torch::autograd::edge_list next;
  bool any = false;
  for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) {
    const auto found = edges.find(index_of(id));
    const bool leads_on = found != edges.end() && found->second.is_valid();
    requires_grad[index_of(id)] = leads_on;
    any |= leads_on;
    next.push_back(leads_on ? found->second : Edge());
  }
  if (!any) return;
  mark_differentiable(recorder_.trace(), {&symbol, 1}, requires_grad);
  const auto node = autograd::make_node<tracer::TraceNode>(recorder_, symbol.op->name, symbol);
  node->set_next_edges(std::move(next));
  for (const ir::ValueId result : node->results()) {
    const bool differentiable = result != ir::kNoValue && requires_grad[index_of(result)];
    if (!differentiable) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    const std::uint32_t number = node->add_input_metadata(recorder_.tensors.make(result));
    if (!edges[index_of(result)].is_valid()) edges[index_of(result)] = Edge(node, number);
    ir::TensorType type = *recorder_.trace().tensor_type(result);
    type.requires_grad = true;
    recorder_.trace().set_type(result, ir::make_type(std::move(type)));
  }
}

void InnerGradient::connect_forward(tracer::TraceNode& node, Derivation& derivation) {
  if (!derivation.edges.empty()) return;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    derivation.edges[index_of(node.inputs()[i])] = node.next_edge(i);
  }
  for (std::size_t i = 0; i < node.results().size(); ++i) {
    if (node.results()[i] == ir::kNoValue || !recorder_.trace().tensor_type(node.results()[i])->requires_grad) continue;
    derivation.edges[index_of(node.results()[i])] = Edge(node.getptr(), static_cast<std::uint32_t>(i));
  }
  for (const ir::BoundSymbol& symbol : derivation.placed) connect(symbol, derivation.edges);
}

namespace {

/// Whether an argument is a number where eager has a tensor, which it saves for a backward (`x * 2`).
bool takes_number_as_tensor(const ir::BoundSymbol& symbol) {
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    const ir::Argument& argument = symbol.arguments[i];
    const bool is_number = argument.is<bool>() || argument.is<std::int64_t>() || argument.is<double>();
    if (is_number && symbol.op->parameters[i].type == "Tensor") return true;
  }
  return false;
}

/// Refuses a second backward that raises in eager for what the trace does not save.
void require_same_saved(const tracer::TraceNode& node, std::size_t backward_symbols) {
  if (!node.is_released() || backward_symbols == 0 || !takes_number_as_tensor(node.symbol())) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: not supported inside a jitted function: a second backward through " + node.name() +
                      " without retain_graph");
}

}  // namespace

InnerGradient::Half InnerGradient::copy_backward(tracer::TraceNode& node, Derivation& derivation,
                                                 const std::vector<ir::ValueId>& cotangents) {
  OperatorReplay& replay = *derivation.replay;
  const OperatorReplay::Backward& half = backward_for(replay, cotangents);
  require_same_saved(node, half.end - half.begin);
  const ir::Trace& from = replay.trace();
  const std::size_t forward_count = derivation.values.size();
  std::vector<ir::ValueId> values(from.value_count(), ir::kNoValue);
  for (std::size_t i = 0; i < half.cotangents.size(); ++i) {
    if (half.cotangents[i] != ir::kNoValue) values[index_of(half.cotangents[i])] = cotangents[i];
  }
  const auto read_forward = [&](ir::ValueId id) {
    TORCH_CHECK(!node.is_released(), torch::autograd::ERR_BACKWARD_TWICE);
    if (derivation.values[index_of(id)] == ir::kNoValue) place_forward(node, derivation);
    node.require_unwritten(derivation.values[index_of(id)]);
    return derivation.values[index_of(id)];
  };
  // Values up to the forward's end belong to both halves; a replay keeps numbering them after it.
  const auto of_forward = [&](ir::ValueId id) { return replay.is_of_forward(id) && index_of(id) < forward_count; };
  const auto slot = [&](ir::ValueId id) -> ir::ValueId& {
    ir::ValueId& value = values[index_of(id)];
    if (value == ir::kNoValue && of_forward(id)) value = read_forward(id);
    return value;
  };
  Half result;
  for (const ir::BoundSymbol& symbol : std::span(from.symbols).subspan(half.begin, half.end - half.begin)) {
    result.symbols.push_back(copy(symbol, from, recorder_.builder.location(), slot));
  }
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    result.gradients.push_back(half.gradients[i] == ir::kNoValue ? ir::kNoValue : slot(half.gradients[i]));
  }
  return result;
}

namespace {

/// The value that one of the first `count` symbols' values is a view of, by way of other views; that value itself where
/// it is none.
ir::ValueId viewed_by(const ir::Trace& trace, std::size_t count, ir::ValueId id) {
  for (const ir::BoundSymbol& symbol : std::span(trace.symbols).first(count) | std::views::reverse) {
    if (!operators::is_view(*symbol.op) || symbol.arguments.empty()) continue;
    const auto* viewed = symbol.arguments[0].get<ir::ValueId>();
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    if (viewed != nullptr && std::ranges::find(results, id) != results.end()) id = *viewed;
  }
  return id;
}

}  // namespace

bool InnerGradient::reads_written(tracer::TraceNode& node) {
  if (node.is_released() || !node.watches_written()) return false;
  const Derivation& derivation = derivation_of(node);
  std::vector<ir::ValueId> cotangents = node.results();
  for (ir::ValueId& id : cotangents) {
    const ir::TensorType* type = recorder_.trace().tensor_type(id);
    if (type == nullptr || !type->requires_grad) id = ir::kNoValue;
  }
  OperatorReplay& replay = *derivation.replay;
  const OperatorReplay::Backward& half = backward_for(replay, cotangents);
  bool found = false;
  const auto look_at = [&](ir::ValueId id) {
    if (id == ir::kNoValue || !replay.is_of_forward(id)) return;
    for (const ir::ValueId read : {id, viewed_by(replay.trace(), replay.forward_end(), id)}) {
      if (index_of(read) >= derivation.values.size()) continue;
      const ir::ValueId value = derivation.values[index_of(read)];
      found |= value != ir::kNoValue && node.is_written(value);
    }
  };
  for (const ir::BoundSymbol& symbol : std::span(replay.trace().symbols).subspan(half.begin, half.end - half.begin)) {
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, look_at);
  }
  for (const ir::ValueId gradient : half.gradients) look_at(gradient);
  return found || saves_written(node, recorder_.trace());
}

const OperatorReplay::Backward& InnerGradient::backward_for(OperatorReplay& replay,
                                                            const std::vector<ir::ValueId>& cotangents) {
  std::vector<ir::TypePtr> types;
  for (const ir::ValueId cotangent : cotangents) {
    if (cotangent == ir::kNoValue) {
      types.push_back(nullptr);
      continue;
    }
    ir::TensorType type = *recorder_.trace().tensor_type(cotangent);
    type.requires_grad = false;
    type.storage_offset = 0;
    types.push_back(ir::make_type(std::move(type)));
  }
  const tracer::SuspendRecording of_the_program;
  return replay.backward(types, /*again=*/c10::GradMode::is_enabled());
}

namespace {

/// The type of a cotangent that belongs to a layer of functorch: that of one example, say.
ir::TypePtr type_in_layer(const at::Tensor& cotangent) {
  if (!cotangent.defined()) return nullptr;
  ir::TensorType type;
  type.dtype = bridge::from_torch(cotangent.scalar_type());
  type.device = bridge::from_torch(cotangent.device());
  for (const std::int64_t size : cotangent.sizes()) type.sizes.emplace_back(size);
  for (const std::int64_t stride : c10::contiguous_strides(cotangent.sizes())) type.strides.emplace_back(stride);
  return ir::make_type(std::move(type));
}

}  // namespace

at::Tensor InnerGradient::forward_tensor(tracer::TraceNode& node, Derivation& derivation, ir::ValueId id) {
  TORCH_CHECK(!node.is_released(), torch::autograd::ERR_BACKWARD_TWICE);
  if (derivation.values[index_of(id)] == ir::kNoValue) place_forward(node, derivation);
  const ir::ValueId value = derivation.values[index_of(id)];
  node.require_unwritten(value);
  at::Tensor tensor = recorder_.tensors.make(value);
  if (!c10::GradMode::is_enabled()) return tensor;
  connect_forward(node, derivation);
  const auto edge = derivation.edges.find(index_of(value));
  const bool leads_on = edge != derivation.edges.end() && edge->second.is_valid();
  if (leads_on) torch::autograd::impl::set_gradient_edge(tensor, edge->second);
  return tensor;
}

std::vector<at::Tensor> InnerGradient::derive_in_layers(tracer::TraceNode& node,
                                                        const std::vector<at::Tensor>& cotangents) {
  std::vector<ir::TypePtr> types;
  for (const at::Tensor& cotangent : cotangents) types.push_back(type_in_layer(cotangent));
  std::optional<tracer::AsideOfLayers> aside(std::in_place);
  Derivation& derivation = derivation_of(node);
  std::optional<tracer::SuspendRecording> of_the_program(std::in_place);
  const OperatorReplay::Backward& half = derivation.replay->backward(types, /*again=*/c10::GradMode::is_enabled());
  of_the_program.reset();
  require_same_saved(node, half.end - half.begin);
  ir::Trace part = derivation.replay->trace();
  part.symbols.assign(part.symbols.begin() + static_cast<std::ptrdiff_t>(half.begin),
                      part.symbols.begin() + static_cast<std::ptrdiff_t>(half.end));
  part.inputs.clear();
  part.outputs.clear();
  std::vector<at::Tensor> inputs;
  std::vector<bool> is_known(part.value_count());
  const auto add_input = [&](ir::ValueId id, const at::Tensor& tensor) {
    is_known[index_of(id)] = true;
    part.inputs.push_back(id);
    inputs.push_back(tensor);
    ir::TensorType type = *part.tensor_type(id);  // a replay stops gradients where those of the trace stop
    type.requires_grad = false;
    part.set_type(id, ir::make_type(std::move(type)));
  };
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    const bool is_given = cotangents[i].defined() && half.cotangents[i] != ir::kNoValue;
    if (is_given) add_input(half.cotangents[i], cotangents[i]);
  }
  const auto read = [&](ir::ValueId id) {
    if (!is_known[index_of(id)]) add_input(id, forward_tensor(node, derivation, id));
  };
  for (ir::BoundSymbol& symbol : part.symbols) {
    symbol.location = recorder_.builder.location();
    for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) read(id);
    for (const ir::ValueId id : ir::flat_results(symbol)) {
      if (id != ir::kNoValue) is_known[index_of(id)] = true;
    }
  }
  for (const ir::ValueId gradient : half.gradients) {
    if (gradient != ir::kNoValue) read(gradient);
    part.outputs.push_back(gradient == ir::kNoValue ? ir::Argument() : ir::Argument(gradient));
  }
  aside.reset();
  return replay(part, inputs, GradMode::kAsRecorded);
}

std::vector<at::Tensor> InnerGradient::derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents) {
  if (node.num_outputs() == 0) return {};
  const std::shared_ptr<void> outside = recorder_.host.leave_program();
  cotangents.resize(node.results().size());
  const bool in_layers = std::ranges::any_of(cotangents, [](const at::Tensor& cotangent) {
    return cotangent.defined() && tracer::trace_impl(cotangent) == nullptr;
  });
  if (in_layers) return derive_in_layers(node, cotangents);
  std::vector<ir::ValueId> cotangent_values;
  std::unordered_map<std::uint32_t, at::Tensor> tensors;
  for (const at::Tensor& cotangent : cotangents) {
    cotangent_values.push_back(cotangent.defined() ? recorder_.value_of(cotangent) : ir::kNoValue);
    if (cotangent.defined()) tensors[index_of(cotangent_values.back())] = cotangent;
  }
  Derivation& derivation = derivation_of(node);
  Half half = copy_backward(node, derivation, cotangent_values);
  if (node.watches_written() && saves_written(node, recorder_.trace())) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: a tensor that a backward needs is written to after it was used: eager code raises an "
                    "error in the backward");
  }
  Edges edges;
  if (c10::GradMode::is_enabled()) {
    connect_forward(node, derivation);
    edges = derivation.edges;
    for (const auto& [value, cotangent] : tensors) {
      if (cotangent.requires_grad()) edges[value] = torch::autograd::impl::gradient_edge(cotangent);
    }
    for (const ir::BoundSymbol& symbol : half.symbols) connect(symbol, edges);
  }
  for (ir::BoundSymbol& symbol : half.symbols) recorder_.builder.add(std::move(symbol));
  std::vector<at::Tensor> gradients;
  for (const ir::ValueId value : half.gradients) {
    if (value == ir::kNoValue) {
      gradients.emplace_back();
      continue;
    }
    at::Tensor& tensor = tensors[index_of(value)];
    if (!tensor.defined()) {
      tensor = recorder_.tensors.make(value);
      const auto edge = edges.find(index_of(value));
      const bool leads_on = edge != edges.end() && edge->second.is_valid();
      if (leads_on) torch::autograd::impl::set_gradient_edge(tensor, edge->second);
    }
    gradients.push_back(tensor);
  }
  return gradients;
}

}  // namespace thunder::transforms
