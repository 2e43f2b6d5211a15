#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "runtime/differentiable_program.h"
#include "transforms/grad.h"

namespace thunder::compile {

/// Drops the saved values that the backward trace does not read, and that give it no symbol, from its inputs and from
/// the forward's outputs.
[[nodiscard]] std::pair<ir::Trace, ir::Trace> drop_unused_saved_values(const ir::Trace& forward,
                                                                       const ir::Trace& backward,
                                                                       std::size_t output_count);

/// A backward trace without the saved values, its first `saved_count` inputs, that it reads neither the data of nor the
/// symbols; `reads` tells which are left.
[[nodiscard]] ir::Trace drop_unread_inputs(const ir::Trace& backward, std::size_t saved_count,
                                           std::vector<bool>& reads);

/// How the autograd node treats outputs and saved values: which of them are inputs or share memory with inputs or
/// outputs. `forward` and `gradient` come of `computation`. The programs are left alone.
void describe_boundary(const ir::Trace& computation, const ir::Trace& forward,
                       const transforms::ForwardBackward& gradient, runtime::DifferentiableProgram& program);

/// A value, and one that stands for something else than what is computed from the first.
struct FeedSource {
  ir::ValueId value;
  std::optional<ir::ValueId> end{};
};
/// Pairs of positions: the second of `to` is computed from the first of `from`, by operations that gradients go
/// through.
using Feeds = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
[[nodiscard]] Feeds find_feeds(const ir::Trace& trace, std::span<const FeedSource> from,
                               std::span<const ir::ValueId> to);

/// How the cotangents that a backward trace takes, the inputs behind `first`, lie in memory.
[[nodiscard]] std::vector<runtime::CotangentLayout> cotangent_layouts(const ir::Trace& backward, std::size_t first);

}  // namespace thunder::compile
