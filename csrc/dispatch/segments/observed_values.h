#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/segments/segments.h"
#include "ir/size.h"

namespace thunder::dispatch {

/// The values that a run observed at one place: a number's kind and bits, sizes, or a tensor's bytes.
using Observed = std::vector<std::int64_t>;
/// The values that a path goes on with: numbers, and for sizes expressions over symbols. Empty: nothing is looked at.
using Expected = std::vector<ir::Dim>;

/// Looks at the values of a run as the program does; `values` holds a tensor for each value of the recorded trace.
[[nodiscard]] Observed observe(const Observation& observation, const std::vector<at::Tensor>& values);
/// The observations that the checks of a recorded trace expect, one for each of its segments.
[[nodiscard]] std::vector<Expected> expected_after(std::span<const Segment> segments, const ir::Trace& recorded);

/// Whether observations can be what is expected, for some values of the symbols.
[[nodiscard]] bool may_be(const Expected& expected, const Observed& observed);

}  // namespace thunder::dispatch
