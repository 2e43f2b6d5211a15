#pragma once

#include <memory>

#include "dispatch/piece_path.h"

namespace thunder::dispatch {

/// The recorded trace and those of its pieces, for the curious.
[[nodiscard]] std::shared_ptr<compile::Compiled> traces_of(const ir::Trace& recorded, const PiecePath& path);

}  // namespace thunder::dispatch
