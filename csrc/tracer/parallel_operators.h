#pragma once

namespace thunder::tracer {

/// Registers `torch.ops.thunder.*` by which transforms say in a trace what processes share: once per process. Passes
/// (`passes/gradient_buckets.cpp`, `passes/parameter_gathers.cpp`) make collectives of them; run by themselves, they
/// communicate and wait.
void register_parallel_operators();

}  // namespace thunder::tracer
