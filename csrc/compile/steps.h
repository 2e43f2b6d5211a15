#pragma once

#include <span>
#include <variant>

#include "compile/compilation.h"
#include "compile/pass_runner.h"
#include "passes/pass.h"

namespace thunder::compile {

/// Which line a step works on.
enum class Part { kComputation, kForward, kBackward };

/// A pass; it may be switched off.
struct TraceStep {
  Part part;
  const passes::Pass* pass;
};
/// A step on one line that is more than a pass.
struct LineStep {
  Part part;
  const char* name;
  void (*run)(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
  bool optional = false;  ///< may be switched off
};
/// A step on both lines.
struct JointStep {
  const char* name;
  void (*run)(Compilation& compilation, const PassRunner& runner);
  bool optional = false;
};
/// A rewrite of a trace on a GPU whose operations are fused; may be switched off.
struct GpuStep {
  Part part;
  const char* name;
  ir::Trace (*run)(const ir::Trace& trace, ir::DeviceType device, ir::FindOperator find_operator);
};
using Step = std::variant<TraceStep, LineStep, JointStep, GpuStep>;

/// The lines that steps are run for; null: not for that one.
struct Lines {
  TraceLine* forward = nullptr;
  TraceLine* backward = nullptr;
  [[nodiscard]] TraceLine* of(Part part) const {
    TraceLine* line = part == Part::kBackward ? backward : forward;
    return line == nullptr || line->history.empty() ? nullptr : line;
  }
};

/// Runs steps in order; neighbouring TraceSteps of both lines run at once. Without `joint_compilation`, steps on both
/// lines are left out.
void run_steps(std::span<const Step> steps, const Compilation& compilation, const Lines& lines,
               const PassRunner& runner, Compilation* joint_compilation = nullptr);

}  // namespace thunder::compile
