#pragma once

#include <vector>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// Functions under `functools.lru_cache` and `functools.cache`, whose cache has no C API.
[[nodiscard]] bool is_memoized(py::Borrowed function);

/// The function that runs where the cache has no result; null where thunder cannot tell.
[[nodiscard]] py::Borrowed memoized_function(py::Borrowed function);

/// How many calls of such a function have run it; -1 with an exception set.
[[nodiscard]] long memo_misses(py::Borrowed function);

/// The key of the result that its cache got last; null without an exception when the cache keeps nothing.
[[nodiscard]] py::Ref newest_memo_key(py::Borrowed function);

/// The entries of its cache, as (key, result), that may have given `result` to a call with this first argument (null:
/// it has none).
[[nodiscard]] std::vector<py::Ref> memo_entries(py::Borrowed function, py::Borrowed first, py::Borrowed result);
/// Whether its cache still holds one of these. Raises nothing.
[[nodiscard]] bool has_memo_entry(py::Borrowed function, py::Borrowed entry);

/// Has its cache forget one result, which may be gone already.
void forget_memo(py::Borrowed function, py::Borrowed key);

}  // namespace thunder::interpreter
