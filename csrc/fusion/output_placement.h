#pragma once

#include <cstdint>
#include <vector>

#include "ir/size.h"

namespace thunder::fusion {

/// A dense tensor that results of a fusion are parts of. All that happens to them is that an operation puts them there
/// (see `Placements`).
struct Whole {
  struct Part {
    std::uint32_t place = 0;  ///< among the results
    ir::Dim offset = 0;       ///< in elements
    ir::Dims strides;
  };
  std::vector<Part> parts;
  ir::Dims sizes;
  ir::Dims strides;
};

/// A contiguous tensor that is a slice of a fusion's result, of which nothing else is read: a `pad` by negative sizes.
struct Cut {
  std::uint32_t place = 0;  ///< of the result
  ir::Dims start;           ///< in the result, by dimension
  ir::Dims sizes;
  ir::Dims strides;
};

/// Where the results of a fusion may be computed.
struct Destinations {
  /// For each result the place among the inputs of a tensor that it is copied to; nobody looks at that tensor's memory
  /// before, and that is all that happens to the result. -1: there is none.
  std::vector<std::int32_t> inputs;
  std::vector<Whole> wholes;
  std::vector<Cut> cuts;
};

}  // namespace thunder::fusion
