#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compile/compiler.h"
#include "compile/pass_runner.h"
#include "executors/api/lowering.h"
#include "runtime/autograd_node.h"
#include "runtime/program.h"
#include "transforms/grad.h"

namespace thunder::compile {

/// What the steps of a compilation work on and leave behind.
struct Compilation {
  Executors executors;
  std::vector<std::shared_ptr<const TraceTransform>> transforms;
  passes::Recompute rematerialize = passes::Recompute::kNothing;
  bool hands_out_numbers = false;  ///< to Python, which are those that eager gives, to the bit
  bool fuses = false;              ///< this build's executors fuse
  TraceHistory forward;   ///< first the recorded computation; the forward trace once there is a backward one
  TraceHistory backward;  ///< empty when nothing is differentiated
  std::size_t computation_index = 0;  ///< in `forward.traces`: the computation before it was differentiated
  std::optional<transforms::ForwardBackward> gradient;  ///< what the split said; its traces are in the histories

  executors::Claims forward_claims;
  executors::Claims backward_claims;
  std::shared_ptr<const runtime::Program> program;  ///< null when differentiated
  std::shared_ptr<const runtime::DifferentiableProgram> differentiable;
};

/// Runs every step of the list in `pipeline.cpp`.
void run_pipeline(Compilation& compilation, const PassRunner& runner);

/// The passes of that list that rewrite one trace, each once.
[[nodiscard]] std::vector<passes::Pass> trace_passes();

}  // namespace thunder::compile
