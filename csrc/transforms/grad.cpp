#include "transforms/grad.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"
#include "tracer/custom_gradient.h"
#include "tracer/operators.h"
#include "transforms/operator_replay.h"

namespace thunder::transforms {
namespace {

bool requires_grad(const ir::Trace& trace, ir::ValueId value) {
  const ir::TensorType* type = trace.tensor_type(value);
  return type != nullptr && type->requires_grad;
}

ir::Dims contiguous_strides(const ir::Dims& sizes) {
  ir::Dims strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i].hint, 1);
  }
  return strides;
}

/// Every element has a place of its own and there are no gaps: the strides are those of some order of the dimensions.
bool is_dense(const ir::TensorType& type) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // (stride, size)
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i].hint > 1) dims.emplace_back(type.strides[i].hint, type.sizes[i].hint);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t step = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != step) return false;
    step *= size;
  }
  return true;
}

/// One differentiated operation: its replay, and where the replay's forward values ended up. Without a replay it is a
/// custom gradient.
struct Instance {
  const ir::BoundSymbol* symbol = nullptr;
  OperatorReplay* replay = nullptr;
  std::vector<ir::ValueId> inputs;   ///< values of the computation
  std::vector<ir::ValueId> results;  ///< values of the computation
  std::vector<ir::ValueId> forward;  ///< replay value -> value of the forward trace; kNoValue: not of the forward
};

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

/// `_1` of `computation_1`, so that the traces of a program in pieces have names of their own.
std::string number_of_piece(const ir::Trace& computation) {
  const std::size_t begin = computation.name().find('_');
  return begin == std::string::npos ? std::string() : computation.name().substr(begin);
}

class GradTransform {
 public:
  GradTransform(const ir::Trace& computation, std::size_t output_count, bool again)
      : computation_(computation),
        again_(again),
        differentiated_outputs_(std::min(output_count, computation.outputs.size())),
        forward_("forward" + number_of_piece(computation), computation.context()),
        backward_("backward" + number_of_piece(computation), computation.context()),
        to_forward_(computation.value_count(), ir::kNoValue),
        cotangents_(computation.value_count(), ir::kNoValue) {}

  ForwardBackward run() {
    build_forward();
    ForwardBackward result{std::move(forward_), std::move(backward_), computation_.outputs.size(), {}, {}, {}, {}};
    forward_ = std::move(result.forward);
    backward_ = std::move(result.backward);
    build_backward(result);
    result.saved = saved_;
    for (const Instance& instance : instances_) result.served.push_back(served_by(*instance.symbol, instance.replay));
    for (ir::ValueId value : saved_) forward_.outputs.emplace_back(value);
    result.forward = std::move(forward_);
    result.backward = std::move(backward_);
    return result;
  }

 private:
  // --- forward

  void build_forward() {
    for (ir::ValueId input : computation_.inputs) {
      to_forward_[index_of(input)] = forward_.add_input(computation_.value(input).type, computation_.value(input).name);
    }
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
      to_forward_[index_of(results[0])] = to_forward_[index_of(std::get<ir::ValueId>(symbol.arguments[0].content))];
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

  void build_backward(ForwardBackward& result) {
    std::vector<ir::ValueId> cotangent_inputs;
    for (std::size_t i = 0; i < differentiated_outputs_; ++i) {
      const auto* id = computation_.outputs[i].get<ir::ValueId>();
      if (id == nullptr || !requires_grad(computation_, *id)) continue;
      result.differentiable_outputs.push_back(i);
      const ir::ValueId cotangent = backward_.add_value(without_grad(*id), "cotangent" + std::to_string(i));
      cotangent_inputs.push_back(cotangent);
      accumulate(*id, cotangent, {});
    }
    saved_in_backward_.assign(forward_.value_count(), ir::kNoValue);
    for (auto instance = instances_.rbegin(); instance != instances_.rend(); ++instance) add_backward(*instance);
    for (ir::ValueId value : saved_) backward_.inputs.push_back(saved_in_backward_[index_of(value)]);
    backward_.inputs.insert(backward_.inputs.end(), cotangent_inputs.begin(), cotangent_inputs.end());
    for (std::size_t i = 0; i < computation_.inputs.size(); ++i) {
      const ir::ValueId input = computation_.inputs[i];
      const ir::ValueId gradient = requires_grad(computation_, input) ? cotangents_[index_of(input)] : ir::kNoValue;
      if (gradient == ir::kNoValue) {
        backward_.outputs.emplace_back(ir::None{});
      } else {
        backward_.outputs.emplace_back(gradient);
        result.differentiable_inputs.push_back(i);
      }
    }
  }

  void add_custom_backward(const ir::BoundSymbol& symbol) {
    const ir::ValueId cotangent = cotangents_[index_of(std::get<ir::ValueId>(symbol.results[0].content))];
    if (cotangent == ir::kNoValue) return;
    const tracer::CustomGradient& custom = tracer::custom_gradient_of(symbol, computation_);
    // Passes may have put other values in the place of those that the gradient was recorded with.
    const auto& current = std::get<ir::ArgumentList>(symbol.arguments[1].content);
    const auto current_value = [&](std::size_t i) { return std::get<ir::ValueId>(current[i].content); };
    std::vector<ir::ValueId> values(computation_.value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < custom.reads.size(); ++i) {
      values[index_of(custom.reads[i])] = save(to_forward_[index_of(current_value(i))]);
    }
    values[index_of(custom.cotangent)] = cotangent;
    copy_symbols(computation_, custom.symbols, backward_, symbol,
                 [&](ir::ValueId id) -> ir::ValueId& { return values[index_of(id)]; });
    for (std::size_t i = 0; i < custom.inputs.size(); ++i) {
      if (custom.gradients[i] == ir::kNoValue) continue;
      accumulate(current_value(custom.reads.size() + i), values[index_of(custom.gradients[i])], symbol.location);
    }
  }

  void add_backward(const Instance& instance) {
    if (instance.replay == nullptr) {
      add_custom_backward(*instance.symbol);
      return;
    }
    std::vector<ir::TypePtr> types;
    bool any = false;
    for (ir::ValueId result : instance.results) {
      const ir::ValueId cotangent = result == ir::kNoValue ? ir::kNoValue : cotangents_[index_of(result)];
      types.push_back(cotangent == ir::kNoValue ? nullptr : backward_.value(cotangent).type);
      any |= cotangent != ir::kNoValue;
    }
    if (!any) return;
    const OperatorReplay::Backward& template_ = instance.replay->backward(types, again_);
    const ir::Trace& replay = instance.replay->trace();
    std::vector<ir::ValueId> values(replay.value_count(), ir::kNoValue);
    for (std::size_t i = 0; i < instance.results.size(); ++i) {
      if (template_.cotangents[i] == ir::kNoValue) continue;
      values[index_of(template_.cotangents[i])] = cotangents_[index_of(instance.results[i])];
    }
    const auto slot = [&](ir::ValueId id) -> ir::ValueId& {
      ir::ValueId& value = values[index_of(id)];
      const bool of_forward = index_of(id) < instance.forward.size() && instance.forward[index_of(id)] != ir::kNoValue;
      if (value == ir::kNoValue && of_forward) value = save(instance.forward[index_of(id)]);
      return value;
    };
    const auto symbols = std::span(replay.symbols).subspan(template_.begin, template_.end - template_.begin);
    copy_symbols(replay, symbols, backward_, *instance.symbol, slot);
    for (std::size_t i = 0; i < instance.inputs.size(); ++i) {
      if (template_.gradients[i] == ir::kNoValue) continue;
      accumulate(instance.inputs[i], slot(template_.gradients[i]), instance.symbol->location);
    }
  }

  /// The backward's input for a value of the forward.
  ir::ValueId save(ir::ValueId value) {
    ir::ValueId& input = saved_in_backward_[index_of(value)];
    if (input == ir::kNoValue) {
      input = backward_.add_value(forward_.value(value).type, forward_.value(value).name);
      saved_.push_back(value);
    }
    return input;
  }

  void accumulate(ir::ValueId target, ir::ValueId gradient, const ir::SourceLocation& location) {
    ir::ValueId& sum = cotangents_[index_of(target)];
    if (sum == ir::kNoValue) {
      sum = gradient;
      return;
    }
    ir::BoundSymbol add;
    add.op = add_operator_;
    add.arguments = {ir::Argument(sum), ir::Argument(gradient), ir::Argument(std::int64_t{1})};
    add.location = location;
    sum = backward_.add_value(backward_.value(sum).type);
    add.results.emplace_back(sum);
    backward_.add(std::move(add));
  }

  ir::TypePtr without_grad(ir::ValueId value) const {
    ir::TensorType type = *computation_.tensor_type(value);
    type.requires_grad = false;
    type.storage_offset = 0;
    if (!is_dense(type)) type.strides = contiguous_strides(type.sizes);
    return ir::make_type(std::move(type));
  }

  const ir::Trace& computation_;
  bool again_;
  std::size_t differentiated_outputs_;
  ir::Trace forward_;
  ir::Trace backward_;
  std::vector<ir::ValueId> to_forward_;         ///< computation value -> forward value
  std::vector<ir::ValueId> cotangents_;         ///< computation value -> backward value
  std::vector<ir::ValueId> saved_in_backward_;  ///< forward value -> backward value
  std::vector<ir::ValueId> saved_;
  std::vector<Instance> instances_;
  ReplayTable replays_;
  const ir::Operator* add_operator_ = tracer::find_operator("aten::add", "Tensor");
};

}  // namespace

bool needs_backward(const ir::Trace& computation) {
  return std::any_of(computation.outputs.begin(), computation.outputs.end(), [&](const ir::Argument& output) {
    const auto* id = output.get<ir::ValueId>();
    return id != nullptr && requires_grad(computation, *id);
  });
}

ForwardBackward forward_and_backward(const ir::Trace& computation, std::size_t output_count, bool again) {
  return GradTransform(computation, output_count, again).run();
}

}  // namespace thunder::transforms
