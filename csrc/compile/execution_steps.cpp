#include "compile/execution_steps.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "compile/collectives.h"
#include "compile/execution.h"
#include "compile/saved_values.h"
#include "fusion/batches.h"
#include "fusion/buffer_assignment.h"
#include "fusion/operations.h"
#include "fusion/partition.h"

namespace thunder::compile {

void rewrite_for_executors(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const auto rewrites = [](const executors::Executor* executor) { return executor->replaces != nullptr; };
  if (std::ranges::none_of(compilation.executors, rewrites)) return;
  TraceHistory& history = line.history;
  runner.keep("transform_for_execution", transform_for_execution(history.last(), compilation.executors), history);
  auto fused = run_fusion_passes(history.last(), compilation.executors);
  if (fused) runner.keep("fusion", *std::move(fused), history);
}

void transform_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  for (const auto& transform : compilation.transforms) {
    line.before_transforms.push_back(line.history.size() - 1);
    runner.keep("transform " + transform->name,
                apply_post_optimization(*transform, line.history.last(), saved_range(compilation)), line.history);
  }
}

void transform_backward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const SavedRange in_forward = saved_range(compilation);
  const SavedRange in_backward{0, in_forward.end - in_forward.begin};
  const TraceLine& forward = compilation.forward;
  for (std::size_t i = 0; i < compilation.transforms.size(); ++i) {
    const TraceTransform& transform = *compilation.transforms[i];
    const std::size_t given = forward.before_transforms[i];
    // It may keep, between the two, what it did to the forward.
    if (line.is_for_some) static_cast<void>(apply_post_optimization(transform, forward.history.at(given), in_forward));
    runner.keep("transform " + transform.name, apply_post_optimization(transform, line.history.last(), in_backward),
                line.history);
    require_matching_saved(transform, forward.history.at(given + 1), in_forward, line.history.last(), in_backward);
  }
}

void fuse(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  if (!compilation.fuses) return;
  auto fused = run_built_in_fusion_passes(line.history.last(), compilation.executors);
  if (fused) runner.keep(fusion::kFusionPartition, *std::move(fused), line.history);
}

ir::Trace assign_buffers(const ir::Trace& trace, passes::FindOperator find_operator) {
  const auto target = [](std::string_view executor) { return find_executor(executor)->target; };
  return fusion::assign_buffers(trace, target, find_operator);
}

void batch_kernels(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  for (std::size_t i = 0; compilation.fuses && i < compilation.executors.size(); ++i) {
    const executors::Executor& executor = *compilation.executors[i];
    if (executor.target == nullptr || executor.target->largest_in_batch == 0) continue;
    const auto before = std::span(compilation.executors).first(i);
    const fusion::BatchModel model{
        .executor = executor.name,
        .target = executor.target,
        .role = [&](const ir::BoundSymbol& symbol,
                    const ir::Trace& trace) { return fusion::role_of(symbol, trace, *executor.target); },
        .is_claimed =
            [before](const ir::BoundSymbol& symbol, const ir::Trace& trace) {
              return std::ranges::any_of(before, [&](const auto* each) { return each->claim(*each, symbol, trace); });
            },
        .inputs_die = &line != &compilation.forward,
    };
    auto batched = fusion::batch_kernels(line.history.last(), model);
    if (batched) runner.keep(fusion::kKernelBatches, *std::move(batched), line.history);
  }
}

void check_collectives(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  std::string collectives;
  for (const auto& transform : compilation.transforms) {
    if (transform->check_collectives == nullptr) continue;
    if (collectives.empty()) collectives = describe_collectives(line.history.last());
    if (!collectives.empty()) transform->check_collectives(line.history.last().kind(), collectives);
  }
}

void claim(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  line.claims = executors::claim_trace(line.history.last(), compilation.executors);
}

void lower(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  line.program = executors::lower_trace(line.history.last(), std::exchange(line.claims, {}), compilation.waits);
}

}  // namespace thunder::compile
