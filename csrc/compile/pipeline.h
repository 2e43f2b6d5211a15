#pragma once

#include <vector>

#include "compile/compilation.h"
#include "compile/pass_runner.h"
#include "passes/pass.h"
#include "runtime/differentiable_program.h"

namespace thunder::compile {

/// Runs the steps of the lists in `pipeline.cpp`: all for the forward, for the backward those that decide what is
/// saved.
void run_pipeline(Compilation& compilation, const PassRunner& runner);
/// The backward for some of the cotangents, as far as the one for all is in `compilation.backward`.
[[nodiscard]] TraceLine derive_backward(const Compilation& compilation, const runtime::CotangentSet& cotangents,
                                        const PassRunner& runner);
/// Runs the other steps for a backward.
void finish_backward(const Compilation& compilation, TraceLine& backward, const PassRunner& runner);

/// The passes of those lists that rewrite one trace, each once.
[[nodiscard]] std::vector<passes::Pass> trace_passes();

}  // namespace thunder::compile
