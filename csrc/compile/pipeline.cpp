#include "compile/pipeline.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/parallel.h"
#include "compile/execution.h"
#include "compile/overwritten_values.h"
#include "compile/saved_values.h"
#include "passes/algebraic_simplification.h"
#include "passes/common_subexpression_elimination.h"
#include "passes/constant_folding.h"
#include "passes/dead_code_elimination.h"
#include "passes/fusion_partition.h"
#include "passes/in_place.h"
#include "passes/layout_cleanup.h"
#include "passes/memory_order.h"
#include "passes/rematerialization.h"
#include "transforms/channels_last.h"

namespace thunder::compile {
namespace {

using passes::kAlgebraicSimplification;
using passes::kBackwardMemoryOrder;
using passes::kCommonSubexpressionElimination;
using passes::kDeadCodeElimination;
using passes::kForwardMemoryOrder;
using passes::kInPlace;
using passes::kLayoutCleanup;

/// Runs a function for the forward and, when there is one, the backward trace, at once.
template <typename Function>
void for_both(Compilation& compilation, const Function& function) {
  TaskGraph tasks;
  tasks.add([&] { function(compilation.forward, compilation.forward_claims); });
  if (compilation.gradient) tasks.add([&] { function(compilation.backward, compilation.backward_claims); });
  tasks.run();
}

void fold_constants(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& trace = compilation.forward.last();
  const auto run = [&](const ir::Trace& constants) {
    const runtime::Program program = lower_directly(constants, compilation.executors);
    std::vector<at::Tensor> results(program.output_count());
    program.run(std::span<at::Tensor>(), std::span(results));
    std::vector<ir::ObjectConstant> objects;
    for (at::Tensor& result : results) {
      objects.push_back(trace.context()->add_object(std::make_shared<at::Tensor>(std::move(result)), "torch.Tensor"));
    }
    return objects;
  };
  runner.keep(passes::kConstantFolding, passes::fold_constants(trace, run, &find_operator), compilation.forward);
}

void keep_channels_last(Compilation& compilation, const PassRunner& runner) {
  if (compilation.hands_out_numbers) return;
  auto trace = transforms::channels_last(compilation.forward.last());
  if (trace) runner.keep(transforms::kChannelsLast, *std::move(trace), compilation.forward);
}

void differentiate(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& computation = compilation.forward.last();
  compilation.computation_index = compilation.forward.traces.size() - 1;
  if (!transforms::needs_backward(computation)) return;
  transforms::ForwardBackward gradient = transforms::forward_and_backward(computation);
  gradient.forward = copy_overwritten_saved_values(gradient.forward, gradient.output_count);
  runner.keep("forward_and_backward", gradient.forward, compilation.forward);
  runner.keep("forward_and_backward", gradient.backward, compilation.backward);
  compilation.gradient = std::move(gradient);
}

void drop_saved(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient) return;
  auto [forward, backward] = drop_unused_saved_values(compilation.forward.last(), compilation.backward.last(),
                                                      compilation.gradient->output_count);
  runner.keep("drop_unused_saved_values", std::move(forward), compilation.forward);
  runner.keep("drop_unused_saved_values", std::move(backward), compilation.backward);
}

void rematerialize(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient || compilation.rematerialize == passes::Recompute::kNothing) return;
  auto [forward, backward] =
      passes::rematerialize(compilation.forward.last(), compilation.backward.last(),
                            {compilation.rematerialize, compilation.gradient->output_count}, &find_operator);
  runner.keep(passes::kRematerialization, std::move(forward), compilation.forward);
  runner.keep(passes::kRematerialization, std::move(backward), compilation.backward);
}

// Executors and transforms of the user run Python: one trace after the other, on the thread that compiles.
void rewrite_for_executors(Compilation& compilation, const PassRunner& runner) {
  const auto rewrites = [](const executors::Executor* executor) { return executor->serves != nullptr; };
  if (std::ranges::none_of(compilation.executors, rewrites)) return;
  for (TraceHistory* history : {&compilation.forward, &compilation.backward}) {
    if (history->traces.empty()) continue;
    runner.keep("transform_for_execution", transform_for_execution(history->last(), compilation.executors), *history);
    auto fused = run_fusion_passes(history->last(), compilation.executors);
    if (fused) runner.keep("fusion", *std::move(fused), *history);
  }
}

void apply_transforms(Compilation& compilation, const PassRunner& runner) {
  for (const auto& transform : compilation.transforms) {
    const std::string step = "transform " + transform->name;
    const std::size_t outputs =
        compilation.gradient ? compilation.gradient->output_count : compilation.forward.last().outputs.size();
    const SavedRange in_forward{outputs, compilation.forward.last().outputs.size()};
    const auto apply = [&](TraceHistory& history, SavedRange saved) {
      runner.keep(step, apply_post_optimization(*transform, history.last(), saved), history);
    };
    apply(compilation.forward, in_forward);
    if (!compilation.gradient) continue;
    const SavedRange in_backward{0, in_forward.end - in_forward.begin};
    apply(compilation.backward, in_backward);
    require_matching_saved(*transform, compilation.forward.last(), in_forward, compilation.backward.last(),
                           in_backward);
  }
}

void fuse(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.fuses) return;
  for_both(compilation, [&](TraceHistory& history, executors::Claims& /*claims*/) {
    auto fused = run_built_in_fusion_passes(history.last(), compilation.executors);
    if (fused) runner.keep(passes::kFusionPartition, *std::move(fused), history);
  });
}

void claim(Compilation& compilation, const PassRunner& /*runner*/) {
  for_both(compilation, [&](TraceHistory& history, executors::Claims& claims) {
    claims = executors::claim_trace(history.last(), compilation.executors);
  });
}

void lower(Compilation& compilation, const PassRunner& /*runner*/) {
  runtime::Program forward;
  runtime::Program backward;
  for_both(compilation, [&](TraceHistory& history, executors::Claims& claims) {
    (&history == &compilation.forward ? forward : backward) = executors::lower_trace(history.last(), claims);
  });
  if (!compilation.gradient) {
    compilation.program = std::make_shared<const runtime::Program>(std::move(forward));
    return;
  }
  auto program = std::make_shared<runtime::DifferentiableProgram>();
  program->forward = std::move(forward);
  program->backward = std::move(backward);
  describe_boundary(compilation.forward.last(), compilation.backward.last(), *compilation.gradient, *program);
  compilation.differentiable = std::move(program);
}

/// Which trace a pass rewrites.
enum class Part { kComputation, kForward, kBackward };

struct TraceStep {
  Part part;
  passes::Pass pass;
};
struct JointStep {
  const char* name;
  void (*run)(Compilation& compilation, const PassRunner& runner);
  bool optional;  ///< may be switched off
};
using Step = std::variant<TraceStep, JointStep>;

/// The whole way from a recorded computation to programs. Neighbouring steps of kForward and kBackward run at once.
constexpr std::array kSteps{
    Step(JointStep{passes::kConstantFolding, &fold_constants, true}),
    // after constant_folding: because what only constants needed is dead.
    Step(TraceStep{Part::kComputation, kDeadCodeElimination}),
    // after dead_code_elimination: because what is dead would be recorded again.
    Step(JointStep{transforms::kChannelsLast, &keep_channels_last, true}),
    // after channels_last: because derivatives then come in the same layout. After dead_code_elimination: because what is
    // dead would be differentiated, and saved.
    Step(JointStep{"forward_and_backward", &differentiate, false}),
    // after forward_and_backward: because gradients of what is left out would be added in another order, and the
    // derivatives bring arithmetic and views of their own.
    Step(TraceStep{Part::kForward, kAlgebraicSimplification}),
    Step(TraceStep{Part::kBackward, kAlgebraicSimplification}),
    Step(TraceStep{Part::kForward, kLayoutCleanup}),
    Step(TraceStep{Part::kBackward, kLayoutCleanup}),
    // after layout_cleanup: because what it joins becomes equal. After forward_and_backward: because two equal casts
    // that are one would add their cotangents in the lower precision.
    Step(TraceStep{Part::kForward, kCommonSubexpressionElimination}),
    Step(TraceStep{Part::kBackward, kCommonSubexpressionElimination}),
    Step(TraceStep{Part::kBackward, kDeadCodeElimination}),
    // after backward's dead_code_elimination: because only what is left tells which saved values are read.
    Step(JointStep{"drop_unused_saved_values", &drop_saved, true}),
    // after drop_unused_saved_values: because the cut must not reckon with what nobody reads.
    Step(JointStep{passes::kRematerialization, &rematerialize, true}),
    // after rematerialization: because what is recomputed meets views and expressions that the backward has anyway.
    Step(TraceStep{Part::kBackward, kLayoutCleanup}),
    Step(TraceStep{Part::kBackward, kCommonSubexpressionElimination}),
    Step(TraceStep{Part::kBackward, kDeadCodeElimination}),
    // after rematerialization: because what only saved values needed is dead now.
    Step(TraceStep{Part::kForward, kDeadCodeElimination}),
    // after the last dead_code_elimination: because executors are not asked for what nobody reads. After
    // forward_and_backward: because derivatives hold operations that executors serve too.
    Step(JointStep{"transform_for_execution", &rewrite_for_executors, false}),
    // after transform_for_execution: because the user's last word is on what runs.
    Step(JointStep{"transforms", &apply_transforms, false}),
    // after transforms: because what they look for is operations, not fusions of them.
    Step(JointStep{passes::kFusionPartition, &fuse, true}),
    // after transforms: because what nobody reads has no place, and because what they insert may read any value, which
    // in_place would have overwritten.
    Step(TraceStep{Part::kForward, kForwardMemoryOrder}),
    Step(TraceStep{Part::kBackward, kBackwardMemoryOrder}),
    // after memory_order: because the order says what dies where. After all others: because none but dead code
    // elimination moves operations across writes.
    Step(TraceStep{Part::kForward, kInPlace}),
    Step(TraceStep{Part::kBackward, kInPlace}),
    // after every rewrite: because claims are by position in the final traces.
    Step(JointStep{"claim", &claim, false}),
    Step(JointStep{"lower", &lower, false}),
};

/// Runs the passes at the front of `steps` that need no other trace; returns how many.
std::size_t run_trace_steps(std::span<const Step> steps, Compilation& compilation, const PassRunner& runner) {
  std::vector<passes::Pass> forward;
  std::vector<passes::Pass> backward;
  std::size_t count = 0;
  for (; count < steps.size() && std::holds_alternative<TraceStep>(steps[count]); ++count) {
    const auto& [part, pass] = std::get<TraceStep>(steps[count]);
    if (part == Part::kComputation || part == Part::kForward) forward.push_back(pass);
    if (part == Part::kBackward && compilation.gradient) backward.push_back(pass);
  }
  for_both(compilation, [&](TraceHistory& history, executors::Claims& /*claims*/) {
    for (const passes::Pass& pass : &history == &compilation.forward ? forward : backward) runner.run(pass, history);
  });
  return count;
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  const auto add = [&](const char* name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const Step& step : kSteps) {
    if (const auto* trace_step = std::get_if<TraceStep>(&step)) add(trace_step->pass.name);
    if (const auto* joint = std::get_if<JointStep>(&step); joint != nullptr && joint->optional) add(joint->name);
  }
  return names;
}

std::vector<passes::Pass> trace_passes() {
  std::vector<passes::Pass> rows;
  for (const Step& step : kSteps) {
    const auto* trace_step = std::get_if<TraceStep>(&step);
    if (trace_step == nullptr) continue;
    const auto is_same = [&](const passes::Pass& row) { return std::string_view(row.name) == trace_step->pass.name; };
    if (std::ranges::none_of(rows, is_same)) rows.push_back(trace_step->pass);
  }
  return rows;
}

void run_pipeline(Compilation& compilation, const PassRunner& runner) {
  const std::span<const Step> steps = kSteps;
  std::size_t next = 0;
  while (next < steps.size()) {
    next += run_trace_steps(steps.subspan(next), compilation, runner);
    if (next == steps.size()) break;
    const JointStep& step = std::get<JointStep>(steps[next++]);
    if (!runner.is_enabled(step.name)) continue;
    runner.run_step(step.name, compilation.forward, [&] { step.run(compilation, runner); });
  }
}

}  // namespace thunder::compile
