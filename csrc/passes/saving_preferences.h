#pragma once

#include <cstddef>
#include <vector>

#include "ir/trace.h"
#include "ir/uses.h"
#include "passes/recomputation.h"

namespace thunder::passes {

// Values of a forward, by number, that rematerialization saves or recomputes whatever the cut would say.

/// The values of a forward from which the backward computes what it tests for equality (with a maximum, say).
/// Recomputed, by another kernel perhaps, they could differ in the last bit, and be equal nowhere.
[[nodiscard]] std::vector<bool> compared_values(const ir::Trace& forward, const ir::Trace& backward,
                                                std::size_t output_count);
/// The values of a forward on a GPU that a library's kernels read in the backward. Each would be recomputed by a kernel
/// of its own there, which takes more time than saving it, where on the way into a fusion it takes none.
[[nodiscard]] std::vector<bool> values_read_from_memory(const ir::Trace& forward, const ir::Trace& backward,
                                                        Recompute policy, std::size_t output_count);
/// The values of a forward on a GPU that it has in memory whether they are saved or not: those that are read
/// together with what a library computes from them, as a residual stream is. A chain of sums would be recomputed at
/// once, and written as often as there are sums, where the backward begins.
[[nodiscard]] std::vector<bool> values_in_memory(const ir::Trace& forward, const ir::Uses& uses, Recompute policy);
/// Parameters that a forward gathers from their shards, as they are, shown in another way, or cast: they are to be
/// gathered again, whoever reads them.
[[nodiscard]] std::vector<bool> gathered_values(const ir::Trace& forward);

}  // namespace thunder::passes
