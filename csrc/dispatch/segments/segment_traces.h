#pragma once

#include <memory>

#include "dispatch/segments/segment_path.h"

namespace thunder::dispatch {

/// The recorded trace and those of its segments, for the curious.
[[nodiscard]] std::shared_ptr<compile::Compiled> traces_of(const ir::Trace& recorded, const SegmentPath& path);

}  // namespace thunder::dispatch
