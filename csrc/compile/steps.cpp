#include "compile/steps.h"

#include <cstddef>
#include <vector>

#include "base/parallel.h"

namespace thunder::compile {
namespace {

/// Runs the passes at the front of `steps`; returns how many.
std::size_t run_trace_steps(std::span<const Step> steps, const Lines& lines, const PassRunner& runner) {
  std::vector<passes::Pass> forward;
  std::vector<passes::Pass> backward;
  std::size_t count = 0;
  for (; count < steps.size() && std::holds_alternative<TraceStep>(steps[count]); ++count) {
    const auto& [part, pass] = std::get<TraceStep>(steps[count]);
    if (lines.of(part) != nullptr) (part == Part::kBackward ? backward : forward).push_back(*pass);
  }
  TaskGraph tasks;
  const auto add = [&](TraceLine* line, const std::vector<passes::Pass>& passes) {
    if (passes.empty()) return;
    tasks.add([&runner, line, &passes] {
      for (const passes::Pass& pass : passes) runner.run(pass, line->history);
    });
  };
  add(lines.forward, forward);
  add(lines.backward, backward);
  tasks.run();
  return count;
}

void run_line_step(const LineStep& step, const Compilation& compilation, const Lines& lines, const PassRunner& runner) {
  TraceLine* line = lines.of(step.part);
  if (line == nullptr || !runner.is_enabled(step.name)) return;
  runner.run_step(step.name, line->history, [&] { step.run(compilation, *line, runner); });
}

void run_gpu_step(const GpuStep& step, const Compilation& compilation, const Lines& lines, const PassRunner& runner) {
  TraceLine* line = lines.of(step.part);
  if (line == nullptr || !runner.is_enabled(step.name)) return;
  runner.run_step(step.name, line->history, [&] {
    const ir::Trace& trace = line->history.last();
    if (!fuses_on_gpu(compilation, trace)) return;
    runner.keep(step.name, step.run(trace, ir::DeviceType::kCuda, &find_operator), line->history);
  });
}

}  // namespace

void run_steps(std::span<const Step> steps, const Compilation& compilation, const Lines& lines,
               const PassRunner& runner, Compilation* joint_compilation) {
  std::size_t next = 0;
  while (next < steps.size()) {
    next += run_trace_steps(steps.subspan(next), lines, runner);
    if (next == steps.size()) break;
    const Step& step = steps[next++];
    if (const auto* line_step = std::get_if<LineStep>(&step)) run_line_step(*line_step, compilation, lines, runner);
    if (const auto* gpu_step = std::get_if<GpuStep>(&step)) run_gpu_step(*gpu_step, compilation, lines, runner);
    const auto* joint = std::get_if<JointStep>(&step);
    if (joint == nullptr || joint_compilation == nullptr || !runner.is_enabled(joint->name)) continue;
    runner.run_step(joint->name, joint_compilation->forward.history, [&] { joint->run(*joint_compilation, runner); });
  }
}

}  // namespace thunder::compile
