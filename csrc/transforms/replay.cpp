#include "transforms/replay.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/location.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"
#include "transforms/functorch_layer.h"

namespace thunder::transforms {
namespace {

using c10::DispatchKey;
using c10::IValue;

/// Gives the recorder that is active the locations of a replayed trace, while alive.
class ReplayedLocations {
 public:
  ReplayedLocations() : recorder_(tracer::recorder_on_top()) {
    if (recorder_ != nullptr) outside_ = std::exchange(recorder_->builder.replayed_location, &current_);
  }
  ~ReplayedLocations() {
    if (recorder_ != nullptr) recorder_->builder.replayed_location = outside_;
  }
  ReplayedLocations(const ReplayedLocations&) = delete;
  ReplayedLocations& operator=(const ReplayedLocations&) = delete;

  void set(const ir::SourceLocation& location) {
    current_ = location.file == nullptr && outside_ != nullptr ? *outside_ : location;
  }

 private:
  tracer::Recorder* recorder_;
  const ir::SourceLocation* outside_ = nullptr;
  ir::SourceLocation current_;
};

class Replay {
 public:
  Replay(const ir::Trace& trace, GradMode grad_mode, const AdaptCall& adapt)
      : trace_(trace), grad_mode_(grad_mode), adapt_(adapt), values_(trace.value_count()) {}

  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) {
    THUNDER_CHECK(inputs.size() == trace_.inputs.size(), "replay",
                  trace_.name() + " takes " + std::to_string(trace_.inputs.size()) + " inputs, got " +
                      std::to_string(inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[index_of(trace_.inputs[i])] = inputs[i];
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      locations_.set(symbol.location);
      call(symbol);
    }
    std::vector<at::Tensor> outputs;
    for (const ir::Argument& output : trace_.outputs) {
      const auto* id = output.get<ir::ValueId>();
      THUNDER_CHECK(id != nullptr || output.is<ir::None>(), "replay", "expected tensors among the outputs");
      outputs.push_back(id == nullptr ? at::Tensor() : values_[index_of(*id)].toTensor());
    }
    return outputs;
  }

 private:
  void call(const ir::BoundSymbol& symbol) {
    if (symbol.op == tracer::tensor_constant_operator()) {
      store(symbol.results[0], bridge::tensor_of(*trace_.context(), symbol.arguments[0]));
    } else if (symbol.op == tracer::custom_gradient_operator()) {
      refuse_custom_gradient(symbol);
    } else if (tracer::is_check(*symbol.op)) {
      repeat_check(symbol);
    } else if (symbol.op == tracer::item_operator() || symbol.op == tracer::number_operator()) {
      tracer::Recorder* recorder = tracer::recorder_on_top();
      const auto trace_tensor_of = [&](ir::ValueId id) { return below_layers(values_[index_of(id)].toTensor()); };
      if (recorder != nullptr) store(symbol.results[0], recorder->data.repeat_number(symbol, trace_tensor_of));
    } else if (symbol.op->name == "thunder::restride" && grad_mode_ == GradMode::kAsRecorded) {
      // Who reads strides gets one of its own there; layers of functorch have no rule for it.
      store(symbol.results[0], values_[index_of(std::get<ir::ValueId>(symbol.arguments[0].content))]);
    } else if (symbol.op->style == ir::CallStyle::kTorchOperator) {
      call_operator(symbol);
    } else {
      THUNDER_CHECK(symbol.op->style == ir::CallStyle::kComment, "replay", "cannot call " + symbol.op->name);
    }
  }

  void repeat_check(const ir::BoundSymbol& symbol) const {
    tracer::Recorder* recorder = tracer::recorder_on_top();
    if (recorder == nullptr) return;
    const at::Tensor& tensor = values_[index_of(std::get<ir::ValueId>(symbol.arguments[0].content))].toTensor();
    // The shape of a batched result was checked by the operation, example by example where it has no batching rule.
    const bool is_known =
        symbol.op == tracer::check_shape_operator() && is_batched(tensor) &&
        tensor.sizes().equals(bridge::to_ivalue(symbol.arguments[1], *c10::ListType::ofInts(), writer_).toIntVector());
    if (!is_known) recorder->data.repeat_check(symbol, below_layers(tensor));
  }

  void call_operator(const ir::BoundSymbol& symbol) {
    const c10::OperatorHandle& op = operator_to_call(symbol);
    torch::jit::Stack stack;
    {
      // Numbers become tensors here: not the program's.
      const c10::impl::ExcludeDispatchKeyGuard aside(c10::DispatchKeySet(
          {DispatchKey::TESTING_ONLY_GenericMode, DispatchKey::Fake, DispatchKey::FuncTorchDynamicLayerFrontMode,
           DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::FuncTorchVmapMode}));
      stack = tracer::arguments_of(symbol, op, writer_);
    }
    if (symbol.op->name == "aten::normal_functional" && grad_mode_ == GradMode::kAsRecorded)
      return fill_normal(symbol, stack);
    std::optional<c10::AutoGradMode> no_gradients;
    if (grad_mode_ == GradMode::kAsRecorded && is_cut_off(symbol)) no_gradients.emplace(false);
    if (!adapt_ || !adapt_(symbol, stack)) op.callBoxed(stack);
    for (std::size_t i = 0; i < symbol.results.size() && i < stack.size(); ++i) store(symbol.results[i], stack[i]);
  }

  /// PyTorch has no batching rule for the functional variant, and no forward mode.
  void fill_normal(const ir::BoundSymbol& symbol, const torch::jit::Stack& stack) {
    at::Tensor filled = at::empty_like(stack[0].toTensor());
    filled.normal_(stack[1].toDouble(), stack[2].toDouble(), stack[3].toOptional<at::Generator>());
    store(symbol.results[0], filled);
  }

  /// Layers of functorch lay tensors out in their own way, and not every view of theirs is one.
  [[nodiscard]] const c10::OperatorHandle& operator_to_call(const ir::BoundSymbol& symbol) const {
    const char* form = operators::has_fact(*symbol.op, operators::Fact::kRaisesForStrides)
                           ? operators::copying_form(*symbol.op)
                           : nullptr;
    const bool stays = grad_mode_ != GradMode::kAsRecorded || form == nullptr;
    return tracer::handle_of(stays ? *symbol.op : *tracer::find_operator(form, ""));
  }

  void store(const ir::Argument& result, const IValue& value) {
    if (const auto* id = result.get<ir::ValueId>()) {
      values_[index_of(*id)] = value;
    } else if (const auto* list = result.get<ir::ArgumentList>()) {
      const auto elements = value.toListRef();
      for (std::size_t i = 0; i < list->size(); ++i) store((*list)[i], elements[i]);
    }
  }

  /// Takes values that require grad and gives none that does.
  [[nodiscard]] bool is_cut_off(const ir::BoundSymbol& symbol) const {
    return any_requires_grad(symbol.arguments) && !any_requires_grad(symbol.results);
  }

  [[nodiscard]] bool any_requires_grad(const ir::ArgumentList& arguments) const {
    bool found = false;
    for (const ir::Argument& argument : arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) {
        const ir::TensorType* type = trace_.tensor_type(id);
        found |= type != nullptr && type->requires_grad;
      });
    }
    return found;
  }

  [[noreturn]] static void refuse_custom_gradient(const ir::BoundSymbol& symbol) {
    throw UserError(ErrorKind::kNotImplemented,
                    "vmap: expected operations of PyTorch where a gradient goes through, got a backward of the "
                    "program's own" +
                        ir::describe_line(symbol.location, " (in ", ")") +
                        "; give the torch.autograd.Function a setup_context, and generate_vmap_rule = True or a vmap "
                        "staticmethod");
  }

  const ir::Trace& trace_;
  GradMode grad_mode_;
  const AdaptCall& adapt_;
  std::vector<IValue> values_;
  ReplayedLocations locations_;
  bridge::ArgumentWriter writer_ =
      tracer::make_writer(*trace_.context(), [this](ir::ValueId id) { return values_[index_of(id)]; });
};

/// Hosts the trace that a transform makes: below a program that is recorded, which has the data, or on its own.
class TransformHost final : public tracer::RecordingHost {
 public:
  using Data = std::function<at::Tensor(std::size_t)>;

  explicit TransformHost(const Data& data)
      : RecordingHost(data ? tracer::Recorded::kTransformed : tracer::Recorded::kProgram),
        around_(tracer::recorder_on_top()),
        data_(data) {}

  std::shared_ptr<void> leave_program() override {
    return around_ == nullptr ? nullptr : around_->host.leave_program();
  }
  at::Tensor data_of_input(std::size_t position) override { return data_(position); }
  [[nodiscard]] bool may_communicate() const override { return around_ == nullptr; }

 private:
  const tracer::Recorder* around_;
  const Data& data_;
};

}  // namespace

std::vector<at::Tensor> replay(const ir::Trace& trace, std::span<const at::Tensor> inputs, GradMode grad_mode,
                               const AdaptCall& adapt) {
  return Replay(trace, grad_mode, adapt).run(inputs);
}

ir::Trace record(const ir::Trace& origin, const std::string& step, const RecordedInputs& described,
                 const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& program) {
  TransformHost host(described.data);
  tracer::Recorder recorder(described.is_same_kind ? origin.blank() : ir::Trace(step, origin.context()), host);
  if (const tracer::Recorder* around = tracer::recorder_on_top()) recorder.data.full_graph = around->data.full_graph;
  std::vector<at::Tensor> inputs;
  for (const ir::TypePtr& type : described.types) {
    const std::size_t i = inputs.size();
    const std::string name = i < origin.inputs.size() ? origin.value(origin.inputs[i]).name : std::string();
    inputs.push_back(recorder.add_input(type, name));
  }
  std::vector<at::Tensor> outputs;
  {
    const tracer::RecordTop recording(recorder);
    outputs = program(inputs);
  }
  ir::ArgumentList values;
  for (const at::Tensor& output : outputs) {
    values.push_back(output.defined() ? ir::Argument(recorder.output_of(output)) : ir::Argument());
  }
  ir::Trace result = recorder.finish(std::move(values));
  for (const std::string& earlier : origin.history()) result.add_history(earlier);
  result.add_history(step);
  return result;
}

}  // namespace thunder::transforms
