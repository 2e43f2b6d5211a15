#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/segments/segments.h"

namespace thunder::dispatch {

/// The values that a run observed at one place: a number's kind and bits, sizes, or a tensor's bytes.
using Observed = std::vector<std::int64_t>;

/// Looks at the values of a run as the program does; `values` holds a tensor for each value of the recorded trace.
[[nodiscard]] Observed observe(const Observation& observation, const std::vector<at::Tensor>& values);
/// The observations that the checks of a recorded trace expect, one for each of its segments.
[[nodiscard]] std::vector<Observed> expected_after(std::span<const Segment> segments, const ir::Trace& recorded);

}  // namespace thunder::dispatch
