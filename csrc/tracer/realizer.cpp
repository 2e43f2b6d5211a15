#include "tracer/realizer.h"

#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "bridge/memory_order.h"
#include "bridge/number.h"
#include "bridge/random.h"
#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/map_tensors.h"
#include "tracer/numbers.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"
#include "tracer/realize_scope.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"
#include "tracer/trace_session.h"

namespace thunder::tracer {
namespace {

using c10::IValue;

/// The program that is traced gives these warnings when it runs.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard handler_{this};
};

/// Real execution: nothing recorded, no autocast (its casts are in the trace).
struct RealScope {
  NoWarnings no_warnings;
  SuspendRecording suspended;
  c10::AutoGradMode no_gradients{false};
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

/// The generators as the trace left them, while alive.
class RandomScope {
 public:
  RandomScope(bridge::RandomSources sources, std::optional<bridge::RandomState>& state)
      : sources_(std::move(sources)), state_(state) {
    if (state_) state_->restore();
  }
  ~RandomScope() {
    state_ = bridge::RandomState::now(sources_);
    outside_.restore();
  }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  bridge::RandomSources sources_;
  std::optional<bridge::RandomState>& state_;
  bridge::RandomState outside_ = bridge::RandomState::now(sources_);
};

/// Runs a kernel on data of this call. A program that catches its error is no program for other data.
template <typename Run>
void run_on_data(const std::string& name, const Run& run) {
  try {
    run();
  } catch (const UserError&) {
    throw;
  } catch (...) {
    note_refusal(name + " raised an error for the data of this call, which the program catches");
    TraceSession::current().raised_for_data = true;
    throw;
  }
}

ResultType describe(const at::Tensor& real, bool requires_grad) {
  ir::TensorType type = bridge::type_of(real);
  type.requires_grad = requires_grad && (ir::is_floating_point(type.dtype) || ir::is_complex(type.dtype));
  return {ir::make_type(std::move(type)), -1, -1};
}

}  // namespace

RealizeScope::RealizeScope(RunSymbol run)
    : run_(std::move(run)), previous_(std::exchange(TraceSession::current().realize, this)) {}
RealizeScope::~RealizeScope() { TraceSession::current().realize = previous_; }

void Realizer::store(const ir::Argument& result, const IValue& value) {
  if (const auto* id = result.get<ir::ValueId>()) {
    values_[index_of(*id)] = value;
  } else if (const auto* list = result.get<ir::ArgumentList>()) {
    const auto elements = value.toListRef();
    for (std::size_t i = 0; i < list->size(); ++i) store((*list)[i], elements[i]);
  }
}

c10::Scalar Realizer::number(const ir::Argument& argument) const {
  if (const auto* id = argument.get<ir::ValueId>()) return bridge::unwrap_number(values_[index_of(*id)].toTensor());
  return scalar_of(argument);
}

bool Realizer::run_primitive(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const auto& arguments = symbol.arguments;
  if (symbol.op == tensor_constant_operator()) {
    store(symbol.results[0], bridge::tensor_of(*trace.context(), arguments[0]));
  } else if (symbol.op == custom_gradient_operator() || stands_alone(*symbol.op)) {
    for_each_handed_on(
        symbol, [&](ir::ValueId result, ir::ValueId value) { values_[index_of(result)] = values_[index_of(value)]; });
  } else if (symbol.op == item_operator()) {
    store(symbol.results[0], bridge::wrap_number(number(arguments[0])));
  } else if (symbol.op == number_operator()) {
    const auto result =
        bridge::compute_number(std::get<std::string>(arguments[0].content), number(arguments[1]), number(arguments[2]));
    THUNDER_CHECK(result.has_value(), "tracer", "a number of the trace cannot be computed again");
    store(symbol.results[0], bridge::wrap_number(*result));
  } else {
    return symbol.op->style != ir::CallStyle::kTorchOperator;
  }
  return true;
}

/// By its schema an operation writes to them, or they are running statistics, of which schemas do not say so. A
/// gradient that is computed inside, or `resize_`, ends with writes to inputs in the middle of a trace.
void Realizer::copy_written(const ir::BoundSymbol& symbol, const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    const auto* id = symbol.arguments[i].get<ir::ValueId>();
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool is_statistic = symbol.op->effect && symbol.op->parameters[i].name.starts_with("running_");
    if (id == nullptr || !(is_statistic || (alias != nullptr && alias->isWrite()))) continue;
    IValue& value = values_[index_of(*id)];
    if (value.isTensor() && copied_.insert(index_of(*id)).second) value = value.toTensor().detach().clone();
  }
}

bool Realizer::run_by_executor(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const RealizeScope* scope = TraceSession::current().realize;
  if (scope == nullptr) return false;
  const auto results =
      scope->run()(symbol, trace, [&](ir::ValueId id) { return values_[index_of(id)].toTensor().detach(); });
  if (!results) return false;
  const bool differentiable = has_gradient(trace, symbol);
  const std::vector<ir::ValueId> ids = ir::flat_results(symbol);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == ir::kNoValue) continue;
    const at::Tensor& result = (*results)[i];
    const bool is_leaf = differentiable && (result.is_floating_point() || result.is_complex());
    values_[index_of(ids[i])] = result.detach().set_requires_grad(is_leaf);
  }
  return true;
}

void Realizer::run(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  if (run_primitive(trace, symbol)) return;
  if (run_by_executor(trace, symbol)) return;
  const c10::OperatorHandle& op = handle_of(*symbol.op);
  copy_written(symbol, op.schema());
  const auto writer = make_writer(*trace.context(), [&](ir::ValueId id) { return values_[index_of(id)]; });
  torch::jit::Stack stack = arguments_of(symbol, op, writer);
  if (operators::has_fact(*symbol.op, operators::Fact::kReadsInOrder)) {
    bridge::lay_out_in_order(bridge::place_of_input(op.schema()), stack);
  }
  // Composite operations choose kernels, which round differently, by whether gradients are wanted.
  const c10::AutoGradMode gradients(has_gradient(trace, symbol));
  op.callBoxed(stack);
  for (std::size_t i = 0; i < symbol.results.size(); ++i) store(symbol.results[i], stack[i]);
}

void Realizer::take_computed(const ir::BoundSymbol& symbol) {
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    if (id == ir::kNoValue || index_of(id) >= computed_.size() || !values_[index_of(id)].isTensor()) continue;
    const at::Tensor& known = computed_[index_of(id)];
    const at::Tensor own = values_[index_of(id)].toTensor();
    const bool is_alike = known.defined() && own.defined() && known.sizes() == own.sizes() &&
                          known.dtype() == own.dtype() && known.device() == own.device();
    if (is_alike) values_[index_of(id)] = known.detach().set_requires_grad(own.requires_grad());
  }
}

bool Realizer::leave_out(const ir::BoundSymbol& symbol) {
  const std::string* behind = symbol.op->random ? lost_random_ : nullptr;
  for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) {
    const auto found = unknown_.find(index_of(id));
    if (found != unknown_.end()) behind = found->second;
  }
  if (behind == nullptr) return false;
  if (symbol.op->random) lost_random_ = behind;
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    if (id != ir::kNoValue) unknown_.emplace(index_of(id), behind);
  }
  return true;
}

const IValue& Realizer::known(ir::ValueId value) const {
  const auto found = unknown_.find(index_of(value));
  if (found == unknown_.end()) return values_[index_of(value)];
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: expected a program that does not look at data that it computes from " + *found->second +
                      ", as a transform changes what it computes; look at it outside");
}

void Realizer::advance(const ir::Trace& trace, std::span<const at::Tensor> inputs) {
  values_.resize(trace.value_count());
  const RandomScope random(bridge::random_sources(trace, &operators::may_draw), random_);
  for (; inputs_known_ < inputs.size(); ++inputs_known_) {
    const ir::ValueId input = trace.inputs[inputs_known_];
    if (const auto replaced = replaced_.find(inputs_known_); replaced != replaced_.end()) {
      unknown_.emplace(index_of(input), &replaced->second);
      continue;
    }
    THUNDER_CHECK(inputs[inputs_known_].defined(), "tracer", "the data of an input without data");
    const ir::TensorType* type = trace.tensor_type(input);
    values_[index_of(input)] = inputs[inputs_known_].detach().set_requires_grad(
        type != nullptr && type->requires_grad && !c10::InferenceMode::is_enabled());
  }
  for (; done_ < trace.symbols.size(); ++done_) {
    const ir::BoundSymbol& symbol = trace.symbols[done_];
    if (!unknown_.empty() && leave_out(symbol)) continue;
    run_on_data(symbol.op->name, [&] { run(trace, symbol); });
    if (!computed_.empty()) take_computed(symbol);
  }
}

at::Tensor Realizer::value(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value) {
  const RealScope real;
  advance(trace, inputs);
  return known(value).toTensor().detach();
}

c10::Scalar Realizer::read(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value) {
  const RealScope real;
  advance(trace, inputs);
  return known(value).toTensor().detach().item();
}

at::Tensor Realizer::contents(const ir::Trace& trace, std::span<const at::Tensor> inputs, ir::ValueId value) {
  const RealScope real;
  advance(trace, inputs);
  return known(value).toTensor().detach().clone();
}

ResultTypes Realizer::infer(const ir::Trace& trace, std::span<const at::Tensor> inputs, const c10::OperatorHandle& op,
                            std::span<const IValue> arguments, std::span<const ir::ValueId> values) {
  const bool differentiable = c10::GradMode::is_enabled();
  bool requires_grad = false;
  for (const at::Tensor& tensor : tensors_of(arguments)) requires_grad |= differentiable && tensor.requires_grad();
  const RealScope real;
  advance(trace, inputs);
  std::vector<at::Tensor> reals;
  for (ir::ValueId value : values) reals.push_back(known(value).toTensor());
  std::size_t next = 0;
  torch::jit::Stack stack;
  const auto real_for = [&](const at::Tensor& tensor) { return tensor.defined() ? reals[next++] : tensor; };
  for (const IValue& argument : arguments) stack.push_back(map_tensors(argument, real_for));
  {
    // Numbers that the operation draws here are drawn again when the trace runs.
    std::optional<bridge::RandomState> random = random_;
    bridge::RandomSources sources = bridge::random_sources(trace, &operators::may_draw);
    for (const IValue& argument : arguments) {
      if (argument.isGenerator()) sources.add({.any = true, .own = {argument.toGenerator()}});
    }
    const RandomScope nothing_drawn(std::move(sources), random);
    const c10::AutoGradMode gradients(requires_grad);
    run_on_data(op.operator_name().name, [&] { op.callBoxed(stack); });
  }
  const std::vector<at::Tensor> results = tensors_of(stack);
  const bool is_known = std::ranges::any_of(results, [](const at::Tensor& result) { return result.requires_grad(); });
  ResultTypes types;
  for (const IValue& result : stack) {
    if (result.isNone()) {
      types.results.emplace_back().is_other = true;
      continue;
    }
    if (!result.isTensor() && !result.isTensorList()) {
      throw UserError(ErrorKind::kNotImplemented,
                      op.schema().name() + ": expected an operation that gives tensors, got one that gives a " +
                          result.tagKind() + " that may follow from data; call it outside of the jitted function");
    }
    ResultTypes::Result& described = types.results.emplace_back();
    described.is_list = result.isTensorList();
    for (const at::Tensor& tensor : tensors_of({&result, 1})) {
      described.tensors.push_back(describe(tensor, is_known ? tensor.requires_grad() : requires_grad));
    }
  }
  return types;
}

}  // namespace thunder::tracer
