#pragma once

#include <span>
#include <string>
#include <vector>

#include "executors/api/executor.h"

namespace thunder::compile {

/// Every executor of this build.
[[nodiscard]] std::span<const executors::Executor* const> all_executors();

/// The executors of these names. Throws UserError for a name that is none of them.
[[nodiscard]] std::vector<const executors::Executor*> find_executors(std::span<const std::string> names);

}  // namespace thunder::compile
