#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dispatch/segments/segment_path.h"

namespace thunder::dispatch {

/// Where a walk stopped: no path goes on with what it observed.
struct Stop {
  ir::SourceLocation location;
  std::string unmet{};  ///< the condition on sizes that did not hold; empty: there is none
};

struct Walk {
  std::ptrdiff_t path = -1;  ///< the one that reached its end; -1: stopped
  std::vector<at::Tensor> outputs{};
  std::vector<std::int64_t> symbols{};  ///< their values, by index
  std::vector<at::Tensor> values{};     ///< where it stopped: those of the recorded trace that it had computed
  Stop stop{};
  std::vector<std::size_t>
      untried{};  ///< where it stopped: paths that it left for another one at a place where both go on
};

/// Gives the input tensors of a path; false when it cannot be followed after all. Called under the GIL.
using LoadInputs = std::function<bool(std::size_t path, std::vector<at::Tensor>& inputs)>;

/// Runs down the tree of paths that begin alike, each segment once, the first path as far as it goes. Sizes that are a
/// symbol on one path may be a number later on, where another path has symbols: a walk never goes back, so that its
/// caller begins another one with those that it did not try. Nothing is written unless a path reaches its end; what a
/// stopped walk drew from the generator is the caller's to put back.
[[nodiscard]] Walk walk(std::span<const SegmentPath* const> paths, const LoadInputs& load, bool releases_gil);

}  // namespace thunder::dispatch
