#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "executors/api/executor.h"

namespace thunder::compile {

using Executors = std::vector<const executors::Executor*>;  ///< by priority

/// Makes an executor known by its name, in the place of one that had the name before. Thread-safe, as all here.
void register_executor(const executors::Executor& executor);
/// Forgets the name, also among the defaults. Throws UserError for an executor of this build.
void deregister_executor(std::string_view name);
/// Names of this build's executors and of registered ones.
[[nodiscard]] std::vector<std::string> executor_names();
/// Throws UserError for a name that is none of them.
[[nodiscard]] const executors::Executor* find_executor(std::string_view name);

/// Whether an executor is one of this build.
[[nodiscard]] bool is_built_in(const executors::Executor& executor);

/// The executors of a compilation whose user chooses none.
[[nodiscard]] Executors default_executors();
void set_default_executors(Executors executors);

/// `chosen`, then this build's own, unless `chosen` says itself who runs whatever is left.
[[nodiscard]] Executors with_fallback(Executors chosen);
/// `chosen` with the CPU executor replaced by the one that keeps weights in a library's layout
/// (`Options::prepack_weights`).
[[nodiscard]] Executors with_prepacked_weights(Executors chosen);

}  // namespace thunder::compile
