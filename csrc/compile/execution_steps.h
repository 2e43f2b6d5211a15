#pragma once

#include "compile/compilation.h"
#include "compile/pass_runner.h"

// Steps that let executors and transforms of the user work on the traces, fuse operations, and make programs.

namespace thunder::compile {

/// Executors and transforms of the user run Python: one trace after the other, on the thread that compiles.
void rewrite_for_executors(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void transform_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void transform_backward(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void fuse(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
[[nodiscard]] ir::Trace assign_buffers(const ir::Trace& trace, passes::FindOperator find_operator);
/// The trace with batches of kernels of each executor that launches several at once.
void batch_kernels(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
/// After all passes, on the thread that compiles, since it may run Python.
void check_collectives(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void claim(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
void lower(const Compilation& compilation, TraceLine& line, const PassRunner& runner);

}  // namespace thunder::compile
