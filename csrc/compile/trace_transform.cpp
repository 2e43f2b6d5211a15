#include "compile/trace_transform.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "ir/uses.h"
#include "ir/verifier.h"
#include "tracer/data_dependence.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

[[noreturn]] void fail(const std::string& transform, const std::string& what) {
  throw UserError(ErrorKind::kValue, "transform " + transform + ": " + what);
}
[[noreturn]] void fail(const TraceTransform& transform, const std::string& what) { fail(transform.name, what); }

void verify(const TraceTransform& transform, const ir::Trace& trace) {
  try {
    ir::verify(trace, "the trace that it made");
  } catch (const InternalError& error) {
    fail(transform, error.what());
  }
}

/// A tensor's shape, dtype and device, or what else a value is.
bool is_alike(const ir::TypePtr& left, const ir::TypePtr& right) {
  const auto* one = std::get_if<ir::TensorType>(left.get());
  const auto* other = std::get_if<ir::TensorType>(right.get());
  if (one == nullptr || other == nullptr) return *left == *right;
  return one->dtype == other->dtype && one->device == other->device &&
         bridge::hints(one->sizes) == bridge::hints(other->sizes);
}

ir::TypePtr type_of(const ir::Trace& trace, const ir::Argument& argument) {
  const auto* id = argument.get<ir::ValueId>();
  return id == nullptr ? nullptr : trace.value(*id).type;
}

void require_alike(const TraceTransform& transform, const std::string& what, const ir::TypePtr& got,
                   const ir::TypePtr& expected) {
  if (got == nullptr && expected == nullptr) return;
  if (got != nullptr && expected != nullptr && is_alike(got, expected)) return;
  const auto text = [](const ir::TypePtr& type) { return type == nullptr ? "None" : ir::to_string(*type); };
  fail(transform, what + ": expected " + text(expected) + ", got " + text(got));
}

void require_count(const TraceTransform& transform, const ir::Trace& trace, const char* what, std::size_t got,
                   std::size_t expected) {
  if (got == expected) return;
  fail(transform, "trace " + trace.name() + ": expected " + std::to_string(expected) + " " + what + ", got " +
                      std::to_string(got));
}

bool is_in(SavedRange range, std::size_t i) { return range.begin <= i && i < range.end; }

/// Requires that a transform keeps the trace's outputs, but for those in `free`.
void require_outputs(const TraceTransform& transform, const ir::Trace& before, const ir::Trace& after,
                     SavedRange free) {
  const std::size_t added = free.begin == before.outputs.size() ? free.end - free.begin : 0;
  require_count(transform, after, "outputs", after.outputs.size(), before.outputs.size() + added);
  for (std::size_t i = 0; i < before.outputs.size(); ++i) {
    if (is_in(free, i)) continue;
    require_alike(transform, "output " + std::to_string(i) + " of " + after.name(), type_of(after, after.outputs[i]),
                  type_of(before, before.outputs[i]));
  }
}

/// Requires that a transform keeps the trace's outputs; it may add others behind them, for the epilogue.
void require_first_outputs(const TraceTransform& transform, const ir::Trace& before, const ir::Trace& after) {
  const std::size_t count = before.outputs.size();
  for (std::size_t i = count; i < after.outputs.size(); ++i) {
    const ir::TypePtr type = type_of(after, after.outputs[i]);
    const auto* tensor = type == nullptr ? nullptr : std::get_if<ir::TensorType>(type.get());
    if (tensor == nullptr || tensor->requires_grad) {
      fail(transform, "output " + std::to_string(i) + " of " + after.name() +
                          ": expected a tensor that does not require grad, got " +
                          (type == nullptr ? "None" : ir::to_string(*type)) + "; detach it");
    }
  }
  require_outputs(transform, before, after, {count, after.outputs.size()});
}

/// Requires that a transform keeps the trace's inputs, but for those in `free`.
void require_same_inputs(const TraceTransform& transform, const ir::Trace& before, const ir::Trace& after,
                         SavedRange free) {
  require_count(transform, after, "inputs", after.inputs.size(), before.inputs.size());
  for (std::size_t i = 0; i < before.inputs.size(); ++i) {
    if (is_in(free, i)) continue;
    require_alike(transform, "input " + std::to_string(i) + " of " + after.name(), after.value(after.inputs[i]).type,
                  before.value(before.inputs[i]).type);
  }
}

/// Follows what the prologue returns through a change of it: tensors that it returned before, and constants.
std::vector<ProgramInput> inputs_of(const TraceTransform& transform, const CallTraces& before, const ir::Trace& made) {
  if (made.kind() != ir::TraceKind::kPrologue) fail(transform, "expected the prologue, or an edit of it");
  std::vector<ProgramInput> inputs;
  for (const ir::Argument& output : made.outputs) {
    const auto known = std::ranges::find(before.prologue.outputs, output);
    if (known != before.prologue.outputs.end()) {
      inputs.push_back(before.inputs[static_cast<std::size_t>(known - before.prologue.outputs.begin())]);
      continue;
    }
    const auto makes_it = [&](const ir::BoundSymbol& symbol) {
      return symbol.op == tracer::tensor_constant_operator() && symbol.results[0] == output;
    };
    const auto constant = std::ranges::find_if(made.symbols, makes_it);
    if (constant == made.symbols.end()) fail(transform, "the prologue returns what is no tensor of the call");
    at::Tensor tensor = bridge::tensor_of(*made.context(), constant->arguments[0]);
    ir::TypePtr type = ir::make_type(bridge::type_of(tensor));
    inputs.push_back({.tensor = std::move(tensor), .type = std::move(type), .owner = transform.name});
  }
  return inputs;
}

std::string name_of(const CallTraces& traces, std::size_t input) {
  if (!traces.inputs[input].names.empty()) return "input " + traces.inputs[input].names.front();
  const std::string& hint = traces.computation.value(traces.computation.inputs[input]).name;
  return "input " + std::to_string(input) + (hint.empty() ? "" : " (" + hint + ")");
}

/// The owner of an input has used it, with the metadata that the tensor has.
void require_used(const CallTraces& traces, const ir::Uses& uses, std::size_t i) {
  const ProgramInput& input = traces.inputs[i];
  const ir::ValueId value = traces.computation.inputs[i];
  const ir::TypePtr& taken = traces.computation.value(value).type;
  if (!is_alike(taken, input.type)) {
    fail(input.owner, name_of(traces, i) + ": the prologue gives " + ir::to_string(*input.type) +
                          ", and the computation takes what the program sees, " + ir::to_string(*taken) +
                          "; see TraceEdit.take_stored");
  }
  if (uses.count(value) == 0) fail(input.owner, name_of(traces, i) + ": nothing in the computation reads it");
}

/// The computation takes what the prologue returns; what is some other transform's to use may be as the program saw it.
void require_inputs(const TraceTransform& transform, const CallTraces& traces) {
  const ir::Trace& computation = traces.computation;
  if (computation.inputs.size() != traces.inputs.size()) {
    fail(transform, "trace " + computation.name() + ": expected " + std::to_string(traces.inputs.size()) +
                        " inputs, as the prologue returns, got " + std::to_string(computation.inputs.size()));
  }
  const ir::Uses uses(computation);
  for (std::size_t i = 0; i < traces.inputs.size(); ++i) {
    const ProgramInput& input = traces.inputs[i];
    const ir::TypePtr& taken = computation.value(computation.inputs[i]).type;
    const bool is_as_seen = input.seen != nullptr && is_alike(taken, input.seen);
    if (!is_as_seen) require_alike(transform, name_of(traces, i) + " of " + computation.name(), taken, input.type);
    if (input.owner == transform.name) require_used(traces, uses, i);
  }
}

/// Requires that a transform keeps the checks: values that the program observed while it was traced must be the same.
void require_same_checks(const TraceTransform& transform, const ir::Trace& before, const ir::Trace& after) {
  const auto checks = [](const ir::Trace& trace) {
    return std::ranges::count_if(trace.symbols,
                                 [](const ir::BoundSymbol& symbol) { return tracer::is_check(*symbol.op); });
  };
  if (checks(before) != checks(after)) fail(transform, "expected the checks (prims.check_…) of the trace to stay");
}

}  // namespace

CallTraces apply_pre_prologue(const TraceTransform& transform, CallTraces traces) {
  if (!transform.pre_prologue) return traces;
  auto [prologue, computation, epilogue] = transform.pre_prologue(traces);
  verify(transform, prologue);
  verify(transform, computation);
  verify(transform, epilogue);
  if (epilogue.kind() != ir::TraceKind::kEpilogue) fail(transform, "expected the epilogue, or an edit of it");
  CallTraces made{std::move(prologue), std::move(computation), std::move(epilogue)};
  made.module = traces.module;
  made.inputs = inputs_of(transform, traces, made.prologue);
  require_inputs(transform, made);
  require_first_outputs(transform, traces.computation, made.computation);
  require_same_checks(transform, traces.computation, made.computation);
  return made;
}

void finish_inputs(CallTraces& traces) {
  const ir::Uses uses(traces.computation);
  for (std::size_t i = 0; i < traces.inputs.size(); ++i) {
    const ProgramInput& input = traces.inputs[i];
    if (!input.owner.empty()) require_used(traces, uses, i);
    if (input.seen != nullptr) traces.computation.set_type(traces.computation.inputs[i], input.type);
  }
}

ir::Trace apply_post_optimization(const TraceTransform& transform, const ir::Trace& trace, SavedRange saved) {
  if (!transform.post_optimization) return trace;
  ir::Trace made = transform.post_optimization(trace, saved);
  verify(transform, made);
  const bool is_backward = trace.kind() == ir::TraceKind::kBackward;
  require_same_inputs(transform, trace, made, is_backward ? saved : SavedRange{});
  require_outputs(transform, trace, made, is_backward ? SavedRange{} : saved);
  return made;
}

void require_matching_saved(const TraceTransform& transform, const ir::Trace& forward, SavedRange in_forward,
                            const ir::Trace& backward, SavedRange in_backward) {
  for (std::size_t i = 0; i < in_forward.end - in_forward.begin; ++i) {
    require_alike(transform, "saved value " + std::to_string(i) + " as the backward takes it",
                  backward.value(backward.inputs.at(in_backward.begin + i)).type,
                  type_of(forward, forward.outputs.at(in_forward.begin + i)));
  }
}

}  // namespace thunder::compile
