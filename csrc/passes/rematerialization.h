#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "ir/trace.h"
#include "passes/pass.h"
#include "passes/recomputation.h"

namespace thunder::passes {

struct RematerializationOptions {
  Recompute policy = Recompute::kFree;
  std::size_t output_count = 0;  ///< outputs of the forward before the saved values
  /// Bytes above which `kFast` gives way to `kMemory`; nullopt: it never does.
  std::optional<std::int64_t> most_saved{};
};

/// Chooses the values that the forward saves for the backward: a minimum cut, by bytes, between values that cannot be
/// recomputed and values that the backward reads. Values behind the cut are recomputed in the backward, just before
/// their first use. A view counts as the memory behind it. Inputs of the forward cost nothing where they are saved
/// anyway; with `kFast` and `kMemory`, parameters neither. (Reading another input later than eager does would turn a
/// write to it, which eager allows, into an error.) After A. Chen et al., "Training Deep Nets with Sublinear Memory
/// Cost", and PyTorch's `min_cut_rematerialization_partition`.
[[nodiscard]] std::pair<ir::Trace, ir::Trace> rematerialize(const ir::Trace& forward, const ir::Trace& backward,
                                                            const RematerializationOptions& options,
                                                            FindOperator find_operator);

/// Another backward of a forward that has been cut. Its first inputs are the values behind `output_count` in the
/// outputs of `forward`, the forward before the cut; the result's are `saved`, in this order, and all else is computed
/// again.
[[nodiscard]] ir::Trace read_saved_values(const ir::Trace& forward, const ir::Trace& backward, std::size_t output_count,
                                          std::span<const ir::Argument> saved, FindOperator find_operator);

inline constexpr const char* kRematerialization = "rematerialization";

}  // namespace thunder::passes
