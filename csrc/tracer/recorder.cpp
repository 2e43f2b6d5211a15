#include "tracer/recorder.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/data_dependence.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "tracer/realizer.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

const TraceState& root_of(const TraceState& state) {
  const TraceState* current = &state;
  while (current->view) current = trace_impl(current->view->parent)->state().get();
  return *current;
}

/// `view` and `_reshape_alias` that arise below the program follow from strides that a kernel may not give exactly:
/// `reshape` asks for the same shape and copies where a view is impossible, instead of failing or reading wrongly.
const c10::OperatorHandle& recorded_operator(const c10::OperatorHandle& op, Level level) {
  static const c10::OperatorHandle kReshape = c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
  const c10::OperatorName& name = op.operator_name();
  const bool is_view = level == Level::kBottom && name.name == "aten::view" && name.overload_name.empty();
  return is_view || name.name == "aten::_reshape_alias" ? kReshape : op;
}

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

}  // namespace

Recorder::Recorder(std::string trace_name, std::shared_ptr<ir::TraceContext> context, Level level)
    : trace_(std::move(trace_name), std::move(context)), level_(level) {}
Recorder::~Recorder() = default;

at::Tensor Recorder::add_tensor(ir::TypePtr type, std::string name, bool is_input) {
  const auto& tensor_type = std::get<ir::TensorType>(*type);
  auto state = std::make_shared<TraceState>();
  state->recorder = this;
  state->value = is_input ? trace_.add_input(type, std::move(name)) : trace_.add_value(type, std::move(name));
  at::Tensor tensor = make_trace_tensor(tensor_type, std::move(state));
  if (tensor_type.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

at::Tensor Recorder::add_input(ir::TypePtr type, std::string name) {
  at::Tensor tensor = add_tensor(std::move(type), std::move(name), /*is_input=*/true);
  inputs_.push_back(tensor);
  real_inputs_.emplace_back();
  return tensor;
}

at::Tensor Recorder::add_input(const at::Tensor& real, std::string name) {
  if (auto known = find_input(real)) return *known;
  ir::TensorType type = bridge::type_of(real);
  if (type.device.type == ir::DeviceType::kMeta) {
    throw UserError(ErrorKind::kRuntime, "expected a tensor with data, got " + name +
                                             " on the meta device; materialize the module first, for example with "
                                             "module.to_empty(device=...) and load_state_dict");
  }
  at::Tensor tensor = add_input(ir::make_type(std::move(type)), std::move(name));
  real_inputs_.back() = real;
  inputs_by_real_.emplace(real.unsafeGetTensorImpl(), tensor);
  return tensor;
}

std::optional<at::Tensor> Recorder::find_input(const at::Tensor& real) const {
  const auto found = inputs_by_real_.find(real.unsafeGetTensorImpl());
  return found == inputs_by_real_.end() ? std::nullopt : std::make_optional(found->second);
}

at::Tensor Recorder::add_constant(const at::Tensor& real) {
  ir::TensorType type = bridge::type_of(real);
  auto owner = std::make_shared<at::Tensor>(real.detach());
  const ir::ObjectConstant object = trace_.context()->add_object(std::move(owner), "torch.Tensor");
  at::Tensor tensor = add_tensor(ir::make_type(std::move(type)), {}, /*is_input=*/false);
  ir::BoundSymbol symbol;
  symbol.op = tensor_constant_operator();
  symbol.arguments.emplace_back(object);
  symbol.results.emplace_back(trace_impl(tensor)->state()->value);
  trace_.add(std::move(symbol));
  constants_by_real_.emplace(real.unsafeGetTensorImpl(), tensor);
  real_constants_.push_back(real);
  return tensor;
}

at::Tensor Recorder::replace_real_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || is_trace_tensor(tensor) || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  if (auto input = find_input(tensor)) return *input;
  const auto known = constants_by_real_.find(tensor.unsafeGetTensorImpl());
  if (known != constants_by_real_.end()) return known->second;
  const SuspendRecording suspended;
  return add_constant(tensor);
}

void Recorder::replace_real_tensors(std::span<IValue> arguments) {
  for (IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = replace_real_tensor(argument.toTensor());
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const IValue& element : argument.toListRef()) list.push_back(replace_real_tensor(element.toTensor()));
      argument = std::move(list);
    } else if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& element : argument.toListRef()) {
        list.push_back(element.isNone() ? std::nullopt : std::make_optional(replace_real_tensor(element.toTensor())));
      }
      argument = std::move(list);
    }
  }
}

ir::ValueId Recorder::value_of(const at::Tensor& trace_tensor) {
  TraceTensorImpl* impl = trace_impl(trace_tensor);
  THUNDER_CHECK(impl != nullptr, "tracer", "expected a trace tensor");
  TraceState& state = *impl->state();
  if (state.recorder != this) {
    throw UserError(ErrorKind::kRuntime,
                    "a tensor of another trace was used; it was kept from an earlier call of a jitted function that "
                    "was interrupted while it was traced");
  }
  if (level_ == Level::kTop && trace_tensor.grad_fn() != nullptr) adopt_gradient(trace_tensor);
  refresh(state);
  return state.value;
}

ir::ValueId Recorder::output_of(const at::Tensor& trace_tensor) {
  const bool is_constant = std::ranges::any_of(
      constants_by_real_, [&](const auto& constant) { return share_memory(constant.second, trace_tensor); });
  if (!is_constant) return value_of(trace_tensor);
  return value_of(call_by_name("aten::clone", "", {trace_tensor})[0].toTensor());
}

std::vector<std::size_t> Recorder::written_inputs() const {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (is_written(inputs_[i])) positions.push_back(i);
  }
  return positions;
}

bool Recorder::is_written(const at::Tensor& trace_tensor) const {
  return root_of(*trace_impl(trace_tensor)->state()).writes != 0;
}

bool Recorder::is_input(const at::Tensor& trace_tensor) const {
  const auto& state = trace_impl(trace_tensor)->state();
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const at::Tensor& input) { return trace_impl(input)->state() == state; });
}

ir::ArgumentList Recorder::to_arguments(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  bridge::ArgumentReader reader;
  reader.tensor = [this](const at::Tensor& tensor) { return ir::Argument(value_of(tensor)); };
  reader.object = [this](const IValue& value) {
    return ir::Argument(trace_.context()->add_object(std::make_shared<IValue>(value), value.tagKind()));
  };
  ir::ArgumentList result;
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    result.push_back(bridge::to_argument(arguments[i], *parameters[i].real_type(), reader));
  }
  return result;
}

Realizer& Recorder::realizer() {
  if (!realizer_) realizer_ = std::make_unique<Realizer>();
  return *realizer_;
}

void Recorder::expect_results(const c10::OperatorHandle& op, std::shared_ptr<const ResultTypes> types) {
  expected_operator_ = op;
  expected_types_ = std::move(types);
}

std::shared_ptr<const ResultTypes> Recorder::infer_cached(const c10::OperatorHandle& op,
                                                          std::span<const IValue> arguments, Level level) {
  if (shape_follows_data(op, arguments)) {
    if (level == Level::kTop) return std::make_shared<const ResultTypes>(infer_by_running(op, arguments));
    if (expected_operator_ && *expected_operator_ == op) return expected_types_;
  }
  const std::string key = metadata_key(op, arguments);
  if (!key.empty()) {
    const auto found = inferred_.find(key);
    if (found != inferred_.end()) return found->second;
  }
  const EvaluateOnly nothing_recorded;
  auto types =
      std::make_shared<const ResultTypes>(level == Level::kTop ? infer_top(op, arguments) : infer_leaf(op, arguments));
  if (!key.empty() && types->has_tensors()) inferred_.emplace(key, types);
  return types;
}

std::vector<IValue> Recorder::record(const c10::OperatorHandle& op, std::span<const IValue> arguments,
                                     const ResultTypes& types, Level level) {
  ir::BoundSymbol symbol;
  const c10::OperatorHandle& recorded = recorded_operator(op, level);
  symbol.op = operator_for(recorded);
  symbol.arguments = to_arguments(recorded, arguments.first(recorded.schema().arguments().size()));
  if (locate) symbol.location = locate();
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  std::size_t position = 0;
  const auto make = [&](const ResultType& result) -> std::pair<at::Tensor, ir::Argument> {
    const std::size_t index = position++;
    if (result.type == nullptr) return {at::Tensor(), ir::None{}};
    auto state = std::make_shared<TraceState>();
    state->recorder = this;
    state->value = trace_.add_value(result.type);
    c10::Storage storage;
    if (result.alias_of >= 0 && symbol.op->view) {
      const at::Tensor& parent = tensors[static_cast<std::size_t>(result.alias_of)];
      state->writes_seen = root_of(*trace_impl(parent)->state()).writes;
      state->view = ViewOf{parent, op, {arguments.begin(), arguments.end()}, index};
      storage = parent.storage();
    }
    const auto& type = std::get<ir::TensorType>(*result.type);
    const ir::ValueId value = state->value;
    at::Tensor tensor = make_trace_tensor(type, std::move(state), std::move(storage));
    if (type.requires_grad) tensor.set_requires_grad(true);
    return {std::move(tensor), value};
  };
  std::vector<IValue> results;
  for (const ResultTypes::Result& result : types.results) {
    if (result.is_other) {
      results.push_back(result.other);
      symbol.results.emplace_back(ir::None{});
    } else if (result.is_list) {
      c10::List<at::Tensor> list;
      ir::ArgumentList values;
      for (const ResultType& element : result.tensors) {
        auto [tensor, value] = make(element);
        list.push_back(std::move(tensor));
        values.push_back(std::move(value));
      }
      results.emplace_back(std::move(list));
      symbol.results.emplace_back(std::move(values));
    } else {
      auto [tensor, value] = make(result.tensors.front());
      results.emplace_back(std::move(tensor));
      symbol.results.push_back(std::move(value));
    }
  }
  trace_.add(std::move(symbol));
  return results;
}

void Recorder::call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  const std::shared_ptr<void> outside = outside_program ? outside_program() : nullptr;
  const std::size_t count = op.schema().arguments().size();
  replace_real_tensors(std::span(stack).last(count));
  if (level == Level::kTop && reads_number(op)) {
    call_reading_number(op, stack);
  } else if (level == Level::kTop && reads_lengths(op)) {
    call_reading_lengths(op, stack);
  } else if (op.schema().is_mutable()) {
    call_mutable(op, stack, level);
  } else {
    call_functional(op, stack, level);
  }
}

void Recorder::call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) {
  if (level == Level::kBottom && is_composite(op)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
    return;
  }
  const std::size_t count = op.schema().arguments().size();
  const std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  const auto types = infer_cached(op, arguments, level);
  if (types->has_aliases() && is_composite(op)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);  // its parts are recorded instead
    return;
  }
  torch::jit::drop(stack, count);
  if (!types->has_tensors()) {
    if (types->results.empty()) record(op, arguments, *types, level);
    for (const ResultTypes::Result& result : types->results) stack.push_back(result.other);
    return;
  }
  std::vector<IValue> results = record(op, arguments, *types, level);
  if (level == Level::kTop && shape_follows_data(op, arguments)) check_shapes(results);
  for (IValue& result : results) stack.push_back(std::move(result));
}

std::vector<IValue> Recorder::call_by_name(const char* name, const char* overload, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const auto& parameters = op.schema().arguments();
  for (std::size_t i = arguments.size(); i < parameters.size(); ++i) {
    arguments.push_back(parameters[i].default_value().value_or(IValue()));
  }
  call_functional(op, arguments, is_composite(op) ? Level::kBottom : Level::kTop);
  return arguments;
}

void Recorder::copy_written_inputs() {
  const ir::Operator* copy = find_operator("aten::copy_", "");
  for (const std::size_t position : written_inputs()) {
    const at::Tensor& input = inputs_[position];
    const ir::ValueId target = trace_.inputs[position];
    ir::BoundSymbol symbol;
    symbol.op = copy;
    symbol.arguments.emplace_back(target);
    symbol.arguments.emplace_back(value_of(input));
    symbol.arguments.emplace_back(false);
    symbol.results.emplace_back(ir::None{});
    symbol.comment = "written by the program";
    trace_.add(std::move(symbol));
  }
}

ir::Trace Recorder::finish(ir::ArgumentList outputs) {
  copy_written_inputs();
  trace_.outputs = std::move(outputs);
  return std::exchange(trace_, ir::Trace(trace_.name(), trace_.context()));
}

}  // namespace thunder::tracer
