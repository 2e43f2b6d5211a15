#pragma once

#include <functional>
#include <string>

#include "fusion/partition.h"
#include "ir/trace.h"

namespace thunder::fusion {

/// The trace with a block of the executor in the place of each group of its partition, which reads what the group reads
/// and gives what others read of it. Views that others read are made a second time, outside. `describe` gives the
/// comment.
using DescribeFusion = std::function<std::string(const ir::BoundSymbol& fused, const ir::Trace& trace)>;
[[nodiscard]] ir::Trace fuse(const ir::Trace& trace, const FusionModel& model, const std::string& executor,
                             const DescribeFusion& describe);

}  // namespace thunder::fusion
