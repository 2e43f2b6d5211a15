#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compile/executor_list.h"
#include "compile/trace_history.h"
#include "compile/trace_transform.h"
#include "executors/api/lowering.h"
#include "fusion/target.h"
#include "passes/rematerialization.h"
#include "runtime/program.h"
#include "transforms/grad.h"

namespace thunder::compile {

/// A line of traces on its way to a program.
struct TraceLine {
  TraceHistory history;
  std::vector<std::size_t> before_transforms;  ///< in `history`: what each transform of the user was given
  executors::Claims claims;
  runtime::Program program;
  // Only for backwards:
  bool is_for_some = false;  ///< derived anew, for fewer cotangents
  std::vector<bool> reads;   ///< which of the saved values the program takes
};

/// The state that the steps of a compilation work on and leave behind.
struct Compilation {
  Executors executors;
  std::vector<std::shared_ptr<const TraceTransform>> transforms;
  passes::Recompute rematerialize = passes::Recompute::kNothing;
  bool hands_out_numbers = false;  ///< to Python, which are those that eager gives, to the bit
  bool fuses = false;              ///< this build's executors fuse
  bool waits = false;              ///< calls wait for kernels that are compiled in the background
  TraceLine forward;               ///< first the recorded computation; the forward once there is a backward
  TraceLine backward;  ///< for all cotangents, as far as it decides what is saved; empty when nothing is differentiated
  std::size_t computation_index = 0;  ///< in `forward`: the computation before it was differentiated
  std::size_t uncut_index = 0;        ///< in `forward`: the one that saves whatever a backward may read
  std::size_t cut_index = 0;          ///< in `forward`: the one whose saved values backwards take
  std::optional<transforms::ForwardBackward> gradient;  ///< the result of the split; its traces are in the lines
};

/// Where the saved values lie in the last forward trace.
[[nodiscard]] SavedRange saved_range(const Compilation& compilation);

/// The target of the executor that fuses operations on a GPU; null: none does.
[[nodiscard]] const fusion::Target* target_on_gpu(const Compilation& compilation);
/// Whether an executor of the compilation fuses operations on a GPU.
[[nodiscard]] bool fuses_on_gpu(const Compilation& compilation);
/// Whether such an executor may fuse those of a trace: it has an input there.
[[nodiscard]] bool fuses_on_gpu(const Compilation& compilation, const ir::Trace& trace);

}  // namespace thunder::compile
