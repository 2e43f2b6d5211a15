#include "tracer/checkpoint.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "tracer/at_other_sizes.h"
#include "tracer/custom_gradient.h"
#include "tracer/python_function.h"
#include "tracer/symbols.h"
#include "tracer/trace_builder.h"
#include "tracer/trace_node.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

/// Whether an operation changes the statistics that it is given.
bool updates_statistics(const ir::BoundSymbol& symbol) {
  if (!symbol.op->effect || symbol.op->style != ir::CallStyle::kTorchOperator) return false;
  bool has_statistics = false;
  for (std::size_t i = 0; i < symbol.arguments.size() && i < symbol.op->parameters.size(); ++i) {
    const std::string& name = symbol.op->parameters[i].name;
    const bool decides = name == "training" || name == "train" || name == "use_input_stats";
    if (decides && symbol.arguments[i] == ir::Argument(false)) return false;
    has_statistics |= name.starts_with("running_") && symbol.arguments[i].get<ir::ValueId>() != nullptr;
  }
  return has_statistics;
}

bool may_run_again(const ir::Operator& op) {
  return op.style == ir::CallStyle::kTorchOperator && !operators::may_draw(op) && !op.mutates && !op.effect;
}

TraceBuilder& settled(TraceBuilder& builder) {
  builder.settle();
  return builder;
}

using Values = std::unordered_set<std::uint32_t>;

/// The last operations of a trace: a part of the program, then its backward.
struct Part {
  std::size_t operations;
  std::size_t operations_of_backward;
  bool is_reentrant;
};

/// Puts copies of the symbols from `begin` up to `end` that a gradient needs in front of its own.
void recompute(ir::Trace& trace, CustomGradient& gradient, std::size_t begin, std::size_t end) {
  Values needed;
  const auto need = [&](ir::ValueId id) { needed.insert(index_of(id)); };
  const auto need_arguments = [&](const ir::BoundSymbol& symbol) {
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, need);
  };
  std::ranges::for_each(gradient.symbols, need_arguments);
  std::ranges::for_each(gradient.gradients, need);
  std::vector<std::size_t> chosen;
  for (std::size_t i = end; i-- > begin;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    const bool hands_on = symbol.op == custom_gradient_operator();
    const bool is_needed =
        std::ranges::any_of(ir::flat_results(symbol), [&](ir::ValueId id) { return needed.contains(index_of(id)); });
    if (!is_needed || !(hands_on || may_run_again(*symbol.op))) continue;
    chosen.push_back(i);
    if (hands_on) {
      ir::for_each_value(symbol.arguments[0], need);
    } else {
      need_arguments(symbol);
    }
  }
  std::unordered_map<std::uint32_t, ir::ValueId> again;
  const auto replace = [&](ir::ValueId& id) {
    if (const auto found = again.find(index_of(id)); found != again.end()) id = found->second;
  };
  std::vector<ir::BoundSymbol> symbols;
  for (const std::size_t i : chosen | std::views::reverse) {
    ir::BoundSymbol symbol = trace.symbols[i];
    for (ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, replace);
    if (symbol.op == custom_gradient_operator()) {
      for_each_handed_on(symbol, [&](ir::ValueId result, ir::ValueId value) { again[index_of(result)] = value; });
      continue;
    }
    for (ir::Argument& result : symbol.results) {
      ir::for_each_value(result, [&](ir::ValueId& id) {
        const ir::ValueId made = trace.add_value(trace.value(id).type);
        again[index_of(id)] = made;
        id = made;
      });
    }
    symbol.comment = "computed again: torch.utils.checkpoint";
    symbols.push_back(std::move(symbol));
  }
  for (ir::BoundSymbol& symbol : gradient.symbols) {
    for (ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, replace);
    symbols.push_back(std::move(symbol));
  }
  std::ranges::for_each(gradient.gradients, replace);
  gradient.symbols = std::move(symbols);
}

/// Gives the value of a part the gradient that its backward, at the end of the trace, gave.
ir::ValueId hand_on(Recorder& recorder, ir::ValueId value, const CustomGradient& given, const Part& part) {
  auto gradient = std::make_shared<CustomGradient>(given);
  ir::Trace& trace = recorder.trace();
  recorder.builder.settle();
  const std::size_t begin = recorder.builder.begin_of_last(part.operations + part.operations_of_backward);
  const std::size_t end = recorder.builder.begin_of_last(part.operations_of_backward);
  if (part.is_reentrant) {
    for (ir::ValueId& id : gradient->gradients) {
      const ir::ValueId cut_off = trace.add_value(trace.value(id).type);
      recorder.builder.add_here(detach_symbol(id, cut_off));
      id = cut_off;
    }
  }
  gradient->symbols = recorder.builder.cut(end);
  recompute(trace, *gradient, begin, end);
  gradient->reads = free_values(*gradient);
  return recorder.gradients.add({value}, std::move(gradient)).front();
}

}  // namespace

CheckpointRegion::CheckpointRegion(Recorder& recorder, bool is_reentrant)
    : recorder_(recorder), is_reentrant_(is_reentrant), begin_(settled(recorder.builder)) {}

CheckpointRegion::Values CheckpointRegion::values_made(std::size_t end) const {
  Values made;
  for (std::size_t i = begin_.position(); i < end; ++i) {
    for (const ir::ValueId id : ir::flat_results(recorder_.trace().symbols[i])) made.insert(index_of(id));
  }
  return made;
}

void CheckpointRegion::finish(std::span<const at::Tensor> results) {
  const auto symbols = std::span(recorder_.trace().symbols).subspan(begin_.position());
  if (std::ranges::any_of(symbols, updates_statistics)) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: not supported inside a jitted function: torch.utils.checkpoint.checkpoint of a part "
                    "that updates running statistics, which a backward would do once more");
  }
  if (std::ranges::any_of(symbols, [](const ir::BoundSymbol& symbol) { return stands_alone(*symbol.op); })) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: not supported inside a jitted function: torch.utils.checkpoint.checkpoint of a part "
                    "with a backward that looks at data or does something besides computing gradients");
  }
  for (const at::Tensor& result : results) {
    const TraceTensorImpl* impl = trace_impl(result);
    if (impl == nullptr || impl->state()->recorder != &recorder_ || !result.requires_grad() || result.is_leaf())
      continue;
    finish_one(result);
  }
}

void CheckpointRegion::finish_one(const at::Tensor& result) {
  const ir::ValueId value = recorder_.value_of(result);
  ir::Trace& trace = recorder_.trace();
  const TraceBuilder::Mark end(recorder_.builder);
  const Values made = values_made(end.position());
  if (!made.contains(index_of(value))) return;
  recorder_.gradients.note_passed_by(made);
  const std::unique_ptr<GradientFollower> follower = follow_gradient(recorder_);
  CustomGradient gradient;
  ir::TensorType type = *trace.tensor_type(value);
  type.requires_grad = false;
  type.storage_offset = 0;
  const at::Tensor cotangent = recorder_.tensors.add(ir::make_type(std::move(type)));
  if (follower != nullptr) follower->add_cotangent(result, cotangent);
  gradient.cotangents = {trace_impl(cotangent)->state()->value};
  autograd::BackwardWalk walk;
  walk.run_hooks = false;
  walk.roots = {torch::autograd::impl::gradient_edge(result)};
  walk.cotangents = {cotangent};
  walk.has_sizes = sizes_at_hand(recorder_);
  walk.stops_at = [&](torch::autograd::Node& node) {
    const TraceNode* own = as_trace_node(&node);
    const std::vector<ir::ValueId> values = own != nullptr ? own->results() : recorder_.gradients.values_of(node);
    return std::ranges::none_of(values, [&](ir::ValueId id) { return made.contains(index_of(id)); });
  };
  const std::vector<at::Tensor> gradients = walk.run();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradient.inputs.push_back(recorder_.gradients.value_of_edge(walk.stopped[i]));
    gradient.gradients.push_back(recorder_.value_of(gradients[i]));
  }
  recorder_.builder.settle();
  const std::size_t of_backward = recorder_.builder.operations_from(end.position());
  const Part part{recorder_.builder.operations_from(begin_.position()) - of_backward, of_backward, is_reentrant_};
  const ir::ValueId handed_on = hand_on(recorder_, value, gradient, part);
  recorder_.gradients.note_handed_on(value, handed_on);
  trace_impl(result)->state()->value = handed_on;
  if (follower == nullptr) return;
  follower->finish({&result, 1}, {&value, 1}, gradients, gradient,
                   [&](Recorder& there) { return std::vector{hand_on(there, value, gradient, part)}; });
}

}  // namespace thunder::tracer
