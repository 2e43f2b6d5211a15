#pragma once

#include <functional>
#include <string>

#include "fusion/partition.h"
#include "ir/trace.h"

namespace thunder::fusion {

/// The trace with each group of its partition in the place of the group's symbols: one symbol of `fused`, which takes
/// `executor`'s name and the list of what it reads, and gives the list of what others read of it. Views that others
/// read are made a second time, outside. `describe` gives the comment.
using DescribeFusion = std::function<std::string(const ir::BoundSymbol& fused, const ir::Trace& trace)>;
[[nodiscard]] ir::Trace fuse(const ir::Trace& trace, const FusionModel& model, const ir::Operator* fused,
                             const std::string& executor, const DescribeFusion& describe);

}  // namespace thunder::fusion
