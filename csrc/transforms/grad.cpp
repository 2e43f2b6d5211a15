#include "transforms/grad.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/add_meta_dispatch.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <future>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/layout.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"
#include "tracer/custom_gradient.h"
#include "tracer/operators.h"
#include "tracer/symbols.h"
#include "transforms/operator_replay.h"

namespace thunder::transforms {
namespace {

bool requires_grad(const ir::Trace& trace, ir::ValueId value) {
  const ir::TensorType* type = trace.tensor_type(value);
  return type != nullptr && type->requires_grad;
}

/// The strides of the sum of two tensors of the same sizes.
ir::Dims strides_of_sum(const ir::TensorType& left, const ir::TensorType& right) {
  if (left.strides == right.strides && ir::is_dense(left)) return left.strides;
  const auto on_meta = [](const ir::TensorType& type) {
    return at::Tensor(at::detail::empty_strided_meta(bridge::hints(type.sizes), bridge::hints(type.strides), at::kFloat,
                                                     std::nullopt, std::nullopt, std::nullopt));
  };
  const at::Tensor sum = at::meta::add(on_meta(left), on_meta(right));
  return {sum.strides().begin(), sum.strides().end()};
}

ServedOperation served_by(const ir::BoundSymbol& symbol, const OperatorReplay* replay) {
  const ir::Operator& op = *symbol.op;
  std::string name = op.name + "." + (op.overload.empty() ? "default" : op.overload);
  if (const std::size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  if (replay == nullptr) return {name, "custom", "the program brought its own backward", symbol.location};
  if (replay->rule() != nullptr) return {name, "registered", std::string(replay->rule()->reason), symbol.location};
  std::string reason = "PyTorch's autograd layer, replayed";
  if (replay->claimed()) reason += "; executor " + replay->claimed()->executor + " runs the operation itself";
  return {name, "derived", std::move(reason), symbol.location};
}

}  // namespace

class GradTransform {
 public:
  GradTransform(const ir::Trace& computation, std::size_t output_count, bool again)
      : computation_(computation),
        again_(again),
        differentiated_outputs_(std::min(output_count, computation.outputs.size())),
        forward_(ir::TraceKind::kForward, computation.context(), computation.segment()),
        backward_(ir::TraceKind::kBackward, computation.context(), computation.segment()),
        to_forward_(computation.value_count(), ir::kNoValue) {}

  ForwardBackward run() {
    build_forward();
    find_differentiable_outputs();
    ir::Trace backward = build_backward(std::vector<bool>(differentiable_outputs_.size(), true));
    knows_all_saved_ = true;
    ir::Trace values = forward_.empty_copy("");  // all that is needed of it from here on
    ForwardBackward result{
        std::move(forward_), std::move(backward), computation_.outputs.size(), saved_, differentiable_outputs_, {}};
    forward_ = std::move(values);
    for (std::size_t i = 0; i < computation_.inputs.size(); ++i) {
      if (!result.backward.outputs[i].is<ir::None>()) result.differentiable_inputs.push_back(i);
    }
    result.requires_grad.resize(forward_.value_count());
    for (std::uint32_t i = 0; i < to_forward_.size(); ++i) {
      if (to_forward_[i] == ir::kNoValue) continue;
      result.requires_grad[index_of(to_forward_[i])] = requires_grad(computation_, ir::ValueId{i});
    }
    instances_.shrink_to_fit();
    for (const Instance& instance : instances_) result.served.push_back(served_by(*instance.symbol, instance.replay));
    for (ir::ValueId value : saved_) result.forward.outputs.emplace_back(value);
    return result;
  }

  /// `came`: by position among the differentiable outputs.
  ir::Trace build_backward(const std::vector<bool>& came) {
    backward_ = ir::Trace(ir::TraceKind::kBackward, computation_.context(), computation_.segment());
    cotangents_.assign(computation_.value_count(), ir::kNoValue);
    saved_in_backward_.assign(forward_.value_count(), ir::kNoValue);
    for (const ir::ValueId value : saved_) add_saved_input(value);
    std::vector<ir::ValueId> cotangent_inputs;
    for (std::size_t i = 0; i < came.size(); ++i) {
      if (!came[i]) continue;
      const std::size_t output = differentiable_outputs_[i];
      const ir::ValueId id = std::get<ir::ValueId>(computation_.outputs[output].content);
      cotangent_inputs.push_back(backward_.add_value(without_grad(id), "cotangent" + std::to_string(output)));
      accumulate(id, cotangent_inputs.back(), {});
    }
    for (auto instance = instances_.rbegin(); instance != instances_.rend(); ++instance) add_backward(*instance);
    for (ir::ValueId value : saved_) backward_.inputs.push_back(saved_in_backward_[index_of(value)]);
    backward_.inputs.insert(backward_.inputs.end(), cotangent_inputs.begin(), cotangent_inputs.end());
    for (const ir::ValueId input : computation_.inputs) {
      const ir::ValueId gradient = requires_grad(computation_, input) ? cotangents_[index_of(input)] : ir::kNoValue;
      if (gradient == ir::kNoValue) {
        backward_.outputs.emplace_back(ir::None{});
      } else {
        backward_.outputs.emplace_back(gradient);
      }
    }
    return std::move(backward_);
  }

 private:
  /// One differentiated operation: its replay, and where the replay's forward values ended up. Without a replay it is a
  /// custom gradient.
  struct Instance {
    const ir::BoundSymbol* symbol = nullptr;
    OperatorReplay* replay = nullptr;
    std::vector<ir::ValueId> inputs;   ///< values of the computation
    std::vector<ir::ValueId> results;  ///< values of the computation
    std::vector<ir::ValueId> forward;  ///< replay value -> value of the forward trace; kNoValue: not of the forward
    std::vector<bool> has_cotangent;   ///< by result: in the backward for all cotangents
  };

  // --- forward

  void build_forward() {
    for (ir::ValueId input : computation_.inputs) {
      to_forward_[index_of(input)] = forward_.add_input(computation_.value(input).type, computation_.value(input).name);
    }
    forward_.memory_of_inputs = computation_.memory_of_inputs;
    for (const ir::BoundSymbol& symbol : computation_.symbols) add_forward(symbol);
    for (ir::Argument output : computation_.outputs) {
      ir::for_each_value(output, [&](ir::ValueId& id) { id = to_forward_[index_of(id)]; });
      forward_.outputs.push_back(std::move(output));
    }
  }

  void add_forward(const ir::BoundSymbol& symbol) {
    std::vector<ir::ValueId> results = ir::flat_results(symbol);
    const bool differentiable = std::any_of(results.begin(), results.end(), [&](ir::ValueId value) {
      return value != ir::kNoValue && requires_grad(computation_, value);
    });
    if (symbol.op == tracer::custom_gradient_operator()) {
      tracer::for_each_handed_on(symbol, [&](ir::ValueId result, ir::ValueId value) {
        to_forward_[index_of(result)] = to_forward_[index_of(value)];
      });
      instances_.emplace_back().symbol = &symbol;
    } else if (differentiable) {
      add_differentiated(symbol, std::move(results));
    } else {
      add_unchanged(symbol);
    }
  }

  void add_unchanged(const ir::BoundSymbol& symbol) {
    ir::BoundSymbol copy = symbol;
    for (ir::Argument& argument : copy.arguments) {
      ir::for_each_value(argument, [&](ir::ValueId& id) { id = to_forward_[index_of(id)]; });
    }
    for (ir::Argument& result : copy.results) {
      ir::for_each_value(result, [&](ir::ValueId& id) {
        const ir::ValueId value = forward_.add_value(computation_.value(id).type, computation_.value(id).name);
        to_forward_[index_of(id)] = value;
        id = value;
      });
    }
    forward_.add(std::move(copy));
  }

  void add_differentiated(const ir::BoundSymbol& symbol, std::vector<ir::ValueId> results) {
    Instance instance;
    instance.symbol = &symbol;
    instance.inputs = ir::distinct_values(symbol.arguments);
    instance.results = std::move(results);
    instance.replay = &replays_.find(symbol, instance.inputs, computation_);
    OperatorReplay& replay = *instance.replay;
    instance.forward.assign(replay.trace().value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < instance.inputs.size(); ++i) {
      instance.forward[index_of(replay.inputs()[i])] = to_forward_[index_of(instance.inputs[i])];
    }
    copy_symbols(replay.trace(), std::span(replay.trace().symbols).first(replay.forward_end()), forward_, symbol,
                 [&](ir::ValueId id) -> ir::ValueId& { return instance.forward[index_of(id)]; });
    for (std::size_t i = 0; i < instance.results.size(); ++i) {
      if (instance.results[i] == ir::kNoValue) continue;
      to_forward_[index_of(instance.results[i])] = instance.forward[index_of(replay.results()[i])];
    }
    instances_.push_back(std::move(instance));
  }

  /// Appends symbols of another trace to `into`; `slot` maps a value of that trace to the place of its new value.
  template <typename Slot>
  static void copy_symbols(const ir::Trace& from, std::span<const ir::BoundSymbol> symbols, ir::Trace& into,
                           const ir::BoundSymbol& origin, Slot&& slot) {
    for (const ir::BoundSymbol& symbol : symbols) {
      ir::BoundSymbol copy = symbol;
      copy.location = origin.location;
      for (ir::Argument& argument : copy.arguments)
        ir::for_each_value(argument, [&](ir::ValueId& id) { id = slot(id); });
      for (ir::Argument& result : copy.results) {
        ir::for_each_value(result, [&](ir::ValueId& id) {
          const ir::ValueId value = into.add_value(from.value(id).type);
          slot(id) = value;
          id = value;
        });
      }
      into.add(std::move(copy));
    }
  }

  // --- backward

  void find_differentiable_outputs() {
    for (std::size_t i = 0; i < differentiated_outputs_; ++i) {
      const auto* id = computation_.outputs[i].get<ir::ValueId>();
      if (id != nullptr && requires_grad(computation_, *id)) differentiable_outputs_.push_back(i);
    }
  }

  void add_custom_backward(const ir::BoundSymbol& symbol) {
    const std::vector<ir::ValueId> results = ir::flat_results(symbol);
    const auto has_none = [&](ir::ValueId id) { return cotangents_[index_of(id)] == ir::kNoValue; };
    if (std::ranges::all_of(results, has_none)) return;
    const tracer::CustomGradient& custom = tracer::custom_gradient_of(symbol, computation_);
    // Passes may have put other values in the place of those that the gradient was recorded with.
    const auto& current = std::get<ir::ArgumentList>(symbol.arguments[1].content);
    const auto current_value = [&](std::size_t i) { return std::get<ir::ValueId>(current[i].content); };
    std::vector<ir::ValueId> values(computation_.value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < custom.reads.size(); ++i) {
      values[index_of(custom.reads[i])] = save(to_forward_[index_of(current_value(i))]);
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ir::ValueId came = cotangents_[index_of(results[i])];
      const ir::ValueId cotangent = came != ir::kNoValue ? came : add_zeros(results[i], symbol.location);
      const ir::TensorType& recorded = *computation_.tensor_type(custom.cotangents[i]);
      values[index_of(custom.cotangents[i])] = with_strides(cotangent, recorded.strides, symbol.location);
    }
    copy_symbols(computation_, custom.symbols, backward_, symbol,
                 [&](ir::ValueId id) -> ir::ValueId& { return values[index_of(id)]; });
    for (std::size_t i = 0; i < custom.inputs.size(); ++i) {
      if (custom.gradients[i] == ir::kNoValue) continue;
      accumulate(current_value(custom.reads.size() + i), values[index_of(custom.gradients[i])], symbol.location);
    }
  }

  void add_backward(Instance& instance) {
    if (instance.replay == nullptr) {
      add_custom_backward(*instance.symbol);
      return;
    }
    std::vector<ir::ValueId> cotangents;
    for (const ir::ValueId result : instance.results) {
      cotangents.push_back(result == ir::kNoValue ? ir::kNoValue : cotangents_[index_of(result)]);
    }
    const auto came = [](ir::ValueId id) { return id != ir::kNoValue; };
    if (std::ranges::none_of(cotangents, came)) return;
    if (!knows_all_saved_) {
      for (const ir::ValueId cotangent : cotangents) instance.has_cotangent.push_back(came(cotangent));
    } else if (!reads_saved_values(instance, backward_of(instance, cotangents))) {
      fill_in_zeros(instance, cotangents);
    }
    add_derivative(instance, cotangents);
  }

  const OperatorReplay::Backward& backward_of(const Instance& instance, const std::vector<ir::ValueId>& cotangents) {
    std::vector<ir::TypePtr> types;
    for (const ir::ValueId id : cotangents) types.push_back(id == ir::kNoValue ? nullptr : backward_.value(id).type);
    return instance.replay->backward(types, again_);
  }

  void add_derivative(const Instance& instance, const std::vector<ir::ValueId>& cotangents) {
    const OperatorReplay::Backward& template_ = backward_of(instance, cotangents);
    const ir::Trace& replay = instance.replay->trace();
    std::vector<ir::ValueId> values(replay.value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < instance.results.size(); ++i) {
      if (template_.cotangents[i] != ir::kNoValue) values[index_of(template_.cotangents[i])] = cotangents[i];
    }
    const auto slot = [&](ir::ValueId id) -> ir::ValueId& {
      ir::ValueId& value = values[index_of(id)];
      if (value == ir::kNoValue && is_of_forward(instance, id)) value = save(instance.forward[index_of(id)]);
      return value;
    };
    const auto symbols = std::span(replay.symbols).subspan(template_.begin, template_.end - template_.begin);
    copy_symbols(replay, symbols, backward_, *instance.symbol, slot);
    for (std::size_t i = 0; i < instance.inputs.size(); ++i) {
      if (template_.gradients[i] == ir::kNoValue) continue;
      accumulate(instance.inputs[i], slot(template_.gradients[i]), instance.symbol->location);
    }
  }

  static bool is_of_forward(const Instance& instance, ir::ValueId id) {
    return index_of(id) < instance.forward.size() && instance.forward[index_of(id)] != ir::kNoValue;
  }

  /// The formula for fewer cotangents may read other values than the one for all.
  [[nodiscard]] bool reads_saved_values(const Instance& instance, const OperatorReplay::Backward& template_) const {
    bool saved = true;
    const auto look = [&](ir::ValueId id) {
      if (id == ir::kNoValue || !is_of_forward(instance, id)) return;
      saved = saved && saved_in_backward_[index_of(instance.forward[index_of(id)])] != ir::kNoValue;
    };
    for (std::size_t i = template_.begin; i < template_.end; ++i) {
      for (const ir::Argument& argument : instance.replay->trace().symbols[i].arguments) {
        ir::for_each_value(argument, look);
      }
    }
    std::ranges::for_each(template_.gradients, look);
    return saved;
  }

  void fill_in_zeros(const Instance& instance, std::vector<ir::ValueId>& cotangents) {
    for (std::size_t i = 0; i < cotangents.size(); ++i) {
      if (cotangents[i] != ir::kNoValue || !instance.has_cotangent[i]) continue;
      cotangents[i] = add_zeros(instance.results[i], instance.symbol->location);
    }
  }

  /// As the gradient of a value of the computation.
  ir::ValueId add_zeros(ir::ValueId like, const ir::SourceLocation& location) {
    ir::TensorType type = *computation_.tensor_type(like);
    type.requires_grad = false;
    type.storage_offset = 0;
    type.strides = ir::contiguous_strides(type.sizes);
    const ir::ValueId result = backward_.add_value(ir::make_type(type));
    ir::BoundSymbol zeros = tracer::zeros_symbol(type, result);
    zeros.location = location;
    backward_.add(std::move(zeros));
    return result;
  }

  /// A value of the backward with the strides that operations were recorded for: some go by them, not by indices.
  ir::ValueId with_strides(ir::ValueId value, const ir::Dims& strides, const ir::SourceLocation& location) {
    ir::TensorType type = *backward_.tensor_type(value);
    bool differs = false;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      differs = differs || (type.sizes[i] != ir::Dim(1) && type.strides[i] != strides[i]);
    }
    if (!differs) return value;
    type.strides = strides;
    type.storage_offset = 0;
    const ir::ValueId result = backward_.add_value(ir::make_type(std::move(type)));
    ir::BoundSymbol restride = tracer::restride_symbol(value, strides, result);
    restride.location = location;
    backward_.add(std::move(restride));
    return result;
  }

  /// The backward's input for a value of the forward.
  ir::ValueId save(ir::ValueId value) {
    if (saved_in_backward_[index_of(value)] == ir::kNoValue) {
      THUNDER_CHECK(!knows_all_saved_, "grad", "the backward of some cotangents reads a value that is not saved");
      saved_.push_back(value);
      add_saved_input(value);
    }
    return saved_in_backward_[index_of(value)];
  }

  void add_saved_input(ir::ValueId value) {
    saved_in_backward_[index_of(value)] = backward_.add_value(forward_.value(value).type, forward_.value(value).name);
  }

  void accumulate(ir::ValueId target, ir::ValueId gradient, const ir::SourceLocation& location) {
    ir::ValueId& sum = cotangents_[index_of(target)];
    if (sum == ir::kNoValue) {
      sum = gradient;
      return;
    }
    // The first one decides in which order the sum lies in memory. Best is that of what it is the gradient of.
    const auto is_like_target = [&](ir::ValueId id) {
      return backward_.tensor_type(id)->strides == computation_.tensor_type(target)->strides;
    };
    if (!is_like_target(sum) && is_like_target(gradient)) std::swap(sum, gradient);
    ir::TensorType type = *backward_.tensor_type(sum);
    type.storage_offset = 0;
    type.strides = strides_of_sum(type, *backward_.tensor_type(gradient));
    const ir::ValueId next = backward_.add_value(ir::make_type(std::move(type)));
    ir::BoundSymbol add = tracer::add_symbol(sum, gradient, next);
    add.location = location;
    sum = next;
    backward_.add(std::move(add));
  }

  ir::TypePtr without_grad(ir::ValueId value) const {
    ir::TensorType type = *computation_.tensor_type(value);
    type.requires_grad = false;
    type.storage_offset = 0;
    if (!ir::is_dense(type)) type.strides = ir::contiguous_strides(type.sizes);
    return ir::make_type(std::move(type));
  }

  const ir::Trace computation_;
  bool again_;
  std::size_t differentiated_outputs_;
  std::vector<std::size_t> differentiable_outputs_;
  ir::Trace forward_;
  ir::Trace backward_;
  std::vector<ir::ValueId> to_forward_;         ///< computation value -> forward value
  std::vector<ir::ValueId> cotangents_;         ///< computation value -> backward value
  std::vector<ir::ValueId> saved_in_backward_;  ///< forward value -> backward value
  std::vector<ir::ValueId> saved_;
  bool knows_all_saved_ = false;  ///< a forward of them may have run
  std::vector<Instance> instances_;
  ReplayTable replays_{/*is_inside=*/false};
};

bool needs_backward(const ir::Trace& computation) {
  return std::any_of(computation.outputs.begin(), computation.outputs.end(), [&](const ir::Argument& output) {
    const auto* id = output.get<ir::ValueId>();
    return id != nullptr && requires_grad(computation, *id);
  });
}

ForwardBackward forward_and_backward(const ir::Trace& computation, std::size_t output_count, bool again) {
  THUNDER_CHECK(ir::symbol_sources(computation).empty(), "grad", "expected sizes that are numbers");
  const auto transform = std::make_shared<GradTransform>(computation, output_count, again);
  ForwardBackward gradient = transform->run();
  if (gradient.differentiable_outputs.size() > 1) {
    gradient.derive_backward = [transform](const std::vector<bool>& came) { return transform->build_backward(came); };
  }
  return gradient;
}

ir::Trace backward_for(const ForwardBackward& gradient, const std::vector<bool>& cotangents) {
  THUNDER_CHECK(gradient.derive_backward != nullptr, "grad", "expected several cotangents, some of which come");
  const auto derive = [&] { return gradient.derive_backward(cotangents); };
  if (torch::autograd::get_current_graph_task_id() == -1) return derive();
  // The nodes that are walked ask what the engine, on this thread, wants of the nodes of its own graph; and the mode of
  // the user's backward is not that of the formulas.
  return std::async(std::launch::async, derive).get();
}

}  // namespace thunder::transforms
