#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compile/executor_list.h"
#include "ir/trace.h"
#include "runtime/program.h"
#include "tracer/realize_scope.h"
#include "transforms/claimed.h"

namespace thunder::compile {

/// The trace in which executors have put operations of their own in the place of those that they replace. The first
/// executor that claims or replaces a symbol has it. Operations that it puts there are claimed by itself or by
/// executors behind it.
[[nodiscard]] ir::Trace transform_for_execution(const ir::Trace& trace, const Executors& executors);

/// The trace after the fusion passes of the user's executors, one after another; nullopt: nothing was fused.
[[nodiscard]] std::optional<ir::Trace> run_fusion_passes(const ir::Trace& trace, const Executors& executors);
/// The trace after the fusion passes of this build's executors, which need no Python; nullopt: nothing was fused.
[[nodiscard]] std::optional<ir::Trace> run_built_in_fusion_passes(const ir::Trace& trace, const Executors& executors);

/// All of it: the program of a trace that no pass has seen. `waits`: see `runtime::ProgramBuilder`.
[[nodiscard]] runtime::Program lower_directly(const ir::Trace& trace, const Executors& executors, bool waits = false);

/// The executor that replaces a symbol, before any that claims it; null: none.
[[nodiscard]] const executors::Executor* serving_executor(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                                          const Executors& executors);

/// How an operation that `executor` replaces is differentiated: by a rule of the executor's own. Such a rule lives as
/// long as the process.
void set_rule(const executors::Executor& executor, const ir::Operator* operation, const transforms::GradRule* rule);

/// While alive, programs of this thread are traced and differentiated for these executors.
class ExecutorScope {
 public:
  explicit ExecutorScope(const Executors& executors);

 private:
  std::optional<transforms::ClaimScope> claims_;
  std::optional<tracer::RealizeScope> realizes_;
};

}  // namespace thunder::compile
