#pragma once

#include <cstdint>
#include <functional>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// The bit in the number of a guard which says that weak references stand for objects in its key, or in its tuple of
/// keys: guards do not keep a key alive, whose `state[parameter]` would keep a model. A key with weak references
/// of its own is held as it is.
constexpr std::int64_t kHeldWeakly = 2;

/// A weak reference to an object of a key; null when the object is to be held itself.
using ReferenceTo = std::function<py::Ref(py::Borrowed)>;

/// A key, or a tuple of keys, with weak references in the place of objects; null when none of them is held weakly.
[[nodiscard]] py::Ref weak_key(py::Borrowed key, const ReferenceTo& reference_to);
/// The key that a weak one was made of; null without an exception when an object of it is dead.
[[nodiscard]] py::Ref strong_key(py::Borrowed weak);

}  // namespace thunder::interpreter
