#include "transforms/operator_replay.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "autograd/backward_graph.h"
#include "base/error.h"
#include "bridge/convert.h"
#include "ir/location.h"
#include "tracer/evaluate.h"
#include "tracer/map_tensors.h"
#include "tracer/operators.h"
#include "tracer/recording_scopes.h"
#include "tracer/symbol_call.h"
#include "tracer/trace_tensor.h"
#include "transforms/opaque_backward.h"
#include "transforms/rule_table.h"

namespace thunder::transforms {
namespace {

std::string describe(const ir::BoundSymbol& symbol) {
  return symbol.op->name + ir::describe_line(symbol.location, " (called in ", ")");
}

/// The types of a symbol's results, for operators whose shapes follow from data.
std::shared_ptr<const tracer::ResultTypes> result_types(const ir::BoundSymbol& symbol, const ir::Trace& source) {
  auto types = std::make_shared<tracer::ResultTypes>();
  for (const ir::Argument& result : symbol.results) {
    auto& described = types->results.emplace_back();
    described.is_list = result.is<ir::ArgumentList>();
    ir::for_each_value(result, [&](ir::ValueId id) {
      ir::TensorType type = *source.tensor_type(id);
      type.requires_grad = false;
      described.tensors.push_back({ir::make_type(std::move(type)), -1, -1});
    });
  }
  return types;
}

/// A derivative that is taken of another run of the operation holds for the executor's run only where both do the same.
void require_derivable(const ir::BoundSymbol& symbol, const ClaimedOperation& claimed) {
  const ir::Operator& op = *claimed.derived_from;
  if (!op.random && !op.effect && !op.mutates && op.handle != nullptr) return;
  throw UserError(ErrorKind::kNotImplemented, "executor '" + claimed.executor + "': " + symbol.op->name +
                                                  ": expected a grad_transform for an " +
                                                  "operation that draws random numbers or writes, got none");
}

std::string message_of(const std::exception& error) {
  const auto* of_pytorch = dynamic_cast<const c10::Error*>(&error);
  return of_pytorch == nullptr ? error.what() : of_pytorch->what_without_backtrace();
}

/// Whether this is the error of the nodes that autograd puts where an operator, or one of its arguments, has no
/// derivative, or of a formula that has none for these arguments ("The derivative of linalg.qr depends on Q").
bool says_that_derivative_is_missing(const std::exception& error) {
  const std::string message = message_of(error);
  const auto says = [&](std::string_view words) { return message.find(words) != std::string::npos; };
  if (says("INTERNAL ASSERT FAILED")) return false;
  return (says("derivative for") && says("not implemented")) || says("The derivative of") || says("differentiable");
}

/// Whether this is autograd's error about a tensor that was written to after a derivative had saved it.
bool says_that_saved_was_overwritten(const std::exception& error) {
  return message_of(error).find("modified by an inplace operation") != std::string::npos;
}

}  // namespace

OperatorReplay::OperatorReplay(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values,
                               const ir::Trace& source, bool is_inside)
    : recorder_(ir::Trace("replay", source.context()), tracer::RecordingHost::one_operator()),
      operator_(describe(symbol)) {
  for (ir::ValueId value : values) {
    inputs_.push_back(recorder_.add_input(source.value(value).type));
    input_values_.push_back(recorder_.value_of(inputs_.back()));
  }
  const auto writer = tracer::make_writer(*source.context(), [&](ir::ValueId id) {
    return c10::IValue(inputs_[static_cast<std::size_t>(std::find(values.begin(), values.end(), id) - values.begin())]);
  });
  claimed_ = find_claimed(symbol, source);
  const bool derives_kept = claimed_ && claimed_->rule == nullptr;
  if (derives_kept) require_derivable(symbol, *claimed_);
  const c10::OperatorHandle& op = tracer::handle_of(derives_kept ? *claimed_->derived_from : *symbol.op);
  handle_ = op;
  recorder_.inference.expect(op, result_types(symbol, source));
  torch::jit::Stack stack = tracer::arguments_of(symbol, op, writer);
  const tracer::RecordBottom recording(recorder_);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  rule_call_.arguments = stack;
  rule_call_.is_inside = is_inside;
  rule_call_.rule = claimed_ && claimed_->rule != nullptr ? claimed_->rule : find_rule(op, rule_call_);
  if (rule_call_.rule != nullptr) {
    const c10::AutoGradMode no_gradients(false);
    results_ = rule_call_.rule->forward(rule_call_);
  } else {
    const c10::AutoGradMode with_gradients(true);
    op.callBoxed(stack);
    append_results(stack);
  }
  for (const at::Tensor& result : results_) {
    result_values_.push_back(result.defined() ? recorder_.value_of(result) : ir::kNoValue);
  }
  if (derives_kept) keep_operation(symbol, values, source);
  const std::size_t computed = recorder_.trace().symbols.size();
  recorder_.memory.copy_written();
  if (is_inside && recorder_.trace().symbols.size() != computed) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: expected an operation that writes to none of its arguments where a program computes "
                    "gradients, got " +
                        operator_ + "; compute the gradients outside");
  }
  forward_end_ = recorder_.trace().symbols.size();
  forward_value_count_ = recorder_.trace().value_count();
}

void OperatorReplay::keep_operation(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values,
                                    const ir::Trace& source) {
  ir::BoundSymbol kept = symbol;
  ir::Substitution inputs(source.value_count());
  for (std::size_t i = 0; i < values.size(); ++i) inputs.set(values[i], input_values_[i]);
  inputs.apply(kept.arguments);
  std::size_t position = 0;
  for (ir::Argument& result : kept.results) {
    ir::for_each_value(result, [&](ir::ValueId& id) {
      while (result_values_[position] == ir::kNoValue) ++position;
      ir::ValueId& derived = result_values_[position++];
      id = recorder_.trace().add_value(source.value(id).type);
      if (std::ranges::find(input_values_, derived) == input_values_.end()) kept_.set(derived, id);
      derived = id;
    });
  }
  recorder_.builder.add(std::move(kept));
}

void OperatorReplay::append_results(std::span<const c10::IValue> results) {
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      results_.push_back(result.toTensor());
    } else if (result.isTensorList()) {
      for (const c10::IValue& element : result.toListRef()) results_.push_back(element.toTensor());
    } else {
      results_.emplace_back();
    }
  }
}

std::vector<at::Tensor> OperatorReplay::gradients_by_rule(std::vector<at::Tensor> cotangents) {
  const c10::AutoGradMode no_gradients(false);
  rule_call_.cotangents = std::move(cotangents);
  rule_call_.targets.clear();
  rule_call_.gradients.clear();
  rule_call_.rule->backward(rule_call_);
  std::vector<at::Tensor> gradients(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    for (std::size_t k = 0; k < rule_call_.targets.size(); ++k) {
      if (rule_call_.targets[k].is_same(inputs_[i])) gradients[i] = rule_call_.gradients[k];
    }
  }
  return gradients;
}

std::vector<at::Tensor> OperatorReplay::missing_gradients(const std::vector<at::Tensor>& cotangents,
                                                          const std::string& message) const {
  static const auto kOperator =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("thunder::no_derivative", "")
          .typed<at::Tensor(const at::Tensor&, at::IntArrayRef, at::ScalarType, c10::string_view)>();
  const c10::AutoGradMode no_gradients(false);
  const auto given = std::ranges::find_if(cotangents, [](const at::Tensor& tensor) { return tensor.defined(); });
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& input : inputs_) {
    gradients.push_back(input.requires_grad() ? kOperator.call(*given, input.sizes(), input.scalar_type(), message)
                                              : at::Tensor());
  }
  return gradients;
}

std::vector<at::Tensor> OperatorReplay::gradients_by_backward(const c10::OperatorHandle& backward,
                                                              const std::vector<at::Tensor>& outputs,
                                                              const std::vector<at::Tensor>& cotangents) const {
  const c10::AutoGradMode no_gradients(false);
  torch::jit::Stack stack = rule_call_.arguments;
  c10::List<std::optional<at::Tensor>> results;
  c10::List<std::optional<at::Tensor>> given;
  for (const at::Tensor& result : results_) {
    const auto place = std::ranges::find_if(outputs, [&](const at::Tensor& output) { return output.is_same(result); });
    const bool has_cotangent = place != outputs.end() && cotangents[place - outputs.begin()].defined();
    results.push_back(result);
    given.push_back(has_cotangent ? std::make_optional(cotangents[place - outputs.begin()]) : std::nullopt);
  }
  c10::List<bool> needs;
  const std::vector<at::Tensor> tensors = tracer::tensors_of(rule_call_.arguments);
  for (const at::Tensor& tensor : tensors) needs.push_back(tensor.requires_grad());
  stack.insert(stack.end(), {results, given, needs});
  backward.callBoxed(stack);
  std::vector<at::Tensor> found = stack[0].toTensorVector();
  std::vector<at::Tensor> gradients(inputs_.size());
  std::size_t next = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad()) continue;
    const auto place = std::ranges::find_if(inputs_, [&](const at::Tensor& input) { return input.is_same(tensor); });
    at::Tensor& sum = gradients[static_cast<std::size_t>(place - inputs_.begin())];
    sum = sum.defined() ? at::add(sum, found[next]) : found[next];
    ++next;
  }
  return gradients;
}

const OperatorReplay::Backward& OperatorReplay::backward(std::span<const ir::TypePtr> cotangent_types, bool again) {
  THUNDER_CHECK(cotangent_types.size() == results_.size(), "grad", "one cotangent type for each result");
  ir::CallKey key;
  key.arguments = {again};
  key.types.assign(cotangent_types.begin(), cotangent_types.end());
  auto [entry, is_new] = backwards_.try_emplace(std::move(key));
  Backward& backward = entry->second;
  if (!is_new) return backward;

  const tracer::RecordBottom recording(recorder_);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  backward.begin = recorder_.trace().symbols.size();
  const bool by_rule = rule_call_.rule != nullptr;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> cotangents;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const bool differentiable = results_[i].defined() && (by_rule || results_[i].requires_grad());
    const bool present = cotangent_types[i] != nullptr && differentiable;
    at::Tensor cotangent = present ? recorder_.add_input(cotangent_types[i]) : at::Tensor();
    backward.cotangents.push_back(present ? recorder_.value_of(cotangent) : ir::kNoValue);
    if (!present && !by_rule) continue;
    outputs.push_back(results_[i]);
    cotangents.push_back(std::move(cotangent));
  }
  const std::vector<at::Tensor> gradients =
      by_rule ? gradients_by_rule(std::move(cotangents)) : gradients_by_autograd(outputs, cotangents, again);
  for (const at::Tensor& gradient : gradients) {
    backward.gradients.push_back(gradient.defined() ? recorder_.value_of(gradient) : ir::kNoValue);
  }
  backward.end = recorder_.trace().symbols.size();
  for (std::size_t i = backward.begin; i < backward.end; ++i) kept_.apply(recorder_.trace().symbols[i].arguments);
  for (ir::ValueId& gradient : backward.gradients) {
    const ir::Argument* kept = gradient == ir::kNoValue ? nullptr : kept_.find(gradient);
    if (kept != nullptr) gradient = std::get<ir::ValueId>(kept->content);
  }
  return backward;
}

std::vector<at::Tensor> OperatorReplay::gradients_by_autograd(const std::vector<at::Tensor>& outputs,
                                                              const std::vector<at::Tensor>& cotangents, bool again) {
  const std::size_t begin = recorder_.trace().symbols.size();
  try {
    return autograd::walk_backward(outputs, cotangents, inputs_, again);
  } catch (const std::exception& error) {
    static_cast<void>(recorder_.builder.cut(begin));
    if (says_that_derivative_is_missing(error)) return missing_gradients(cotangents, message_of(error));
    if (says_that_saved_was_overwritten(error)) {
      throw UserError(ErrorKind::kNotImplemented,
                      operator_ +
                          ": it writes over what its own derivative reads, so that a backward raises an error in "
                          "eager, too; compute it of operations that do not");
    }
    if (!tracer::says_data_was_read(error.what())) throw;
    if (const auto backward = find_opaque_backward(*handle_))
      return gradients_by_backward(*backward, outputs, cotangents);
    throw UserError(
        ErrorKind::kNotImplemented,
        operator_ +
            ": its backward reads the data of a tensor (by .tolist(), .item() or .numpy()), which is not "
            "known while thunder traces it; make what reads an operator too (torch.library.custom_op), and call "
            "that in the backward");
  }
}

OperatorReplay& ReplayTable::find(const ir::BoundSymbol& symbol, std::span<const ir::ValueId> values,
                                  const ir::Trace& source) {
  std::unique_ptr<OperatorReplay>& replay = replays_[ir::CallKey(symbol, values, source)];
  if (!replay) replay = std::make_unique<OperatorReplay>(symbol, values, source, is_inside_);
  return *replay;
}

}  // namespace thunder::transforms
