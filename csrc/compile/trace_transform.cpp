#include "compile/trace_transform.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "ir/verifier.h"
#include "tracer/data_dependence.h"

namespace thunder::compile {
namespace {

[[noreturn]] void fail(const TraceTransform& transform, const std::string& what) {
  throw UserError(ErrorKind::kValue, "transform " + transform.name + ": " + what);
}

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

/// Requires that a transform keeps the trace's outputs, but for those in `free_outputs`, and its inputs, but for those
/// in `free_inputs`.
void require_interface(const TraceTransform& transform, const ir::Trace& before, const ir::Trace& after,
                       SavedRange free_outputs, SavedRange free_inputs) {
  const auto require_count = [&](const char* what, std::size_t got, std::size_t expected) {
    if (got != expected) {
      fail(transform, "trace " + after.name() + ": expected " + std::to_string(expected) + " " + what + ", got " +
                          std::to_string(got));
    }
  };
  require_count("inputs", after.inputs.size(), before.inputs.size());
  require_count("outputs", after.outputs.size(), before.outputs.size());
  const auto is_free = [](SavedRange range, std::size_t i) { return range.begin <= i && i < range.end; };
  for (std::size_t i = 0; i < before.inputs.size(); ++i) {
    if (is_free(free_inputs, i)) continue;
    require_alike(transform, "input " + std::to_string(i) + " of " + after.name(), after.value(after.inputs[i]).type,
                  before.value(before.inputs[i]).type);
  }
  for (std::size_t i = 0; i < before.outputs.size(); ++i) {
    if (is_free(free_outputs, i)) continue;
    require_alike(transform, "output " + std::to_string(i) + " of " + after.name(), type_of(after, after.outputs[i]),
                  type_of(before, before.outputs[i]));
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

ir::Trace apply_pre_prologue(const TraceTransform& transform, const ir::Trace& prologue, const ir::Trace& computation,
                             const ir::Trace& epilogue) {
  if (!transform.pre_prologue) return computation;
  ir::Trace made = transform.pre_prologue(prologue, computation, epilogue);
  verify(transform, made);
  require_interface(transform, computation, made, {}, {});
  require_same_checks(transform, computation, made);
  return made;
}

ir::Trace apply_post_optimization(const TraceTransform& transform, const ir::Trace& trace, SavedRange saved) {
  if (!transform.post_optimization) return trace;
  ir::Trace made = transform.post_optimization(trace, saved);
  verify(transform, made);
  const bool is_backward = trace.kind() == ir::TraceKind::kBackward;
  require_interface(transform, trace, made, is_backward ? SavedRange{} : saved, is_backward ? saved : SavedRange{});
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
