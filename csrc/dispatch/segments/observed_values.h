#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/segments/segments.h"

namespace thunder::dispatch {

/// What a run observed at one place: a number's kind and bits, sizes, or a tensor's bytes.
using Observed = std::vector<std::int64_t>;

/// What a run with these values, of the recorded trace, observes.
[[nodiscard]] Observed observe(const Observation& observation, const std::vector<at::Tensor>& values);
/// What the checks of a recorded trace expect after each of its segments.
[[nodiscard]] std::vector<Observed> expected_after(std::span<const Segment> segments, const ir::Trace& recorded);

}  // namespace thunder::dispatch
