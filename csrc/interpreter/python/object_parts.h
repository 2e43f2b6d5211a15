#pragma once

#include <cstdint>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// The parts of a function that decide what a call of it does.
enum class FunctionPart : std::uint8_t { kCode, kDefaults, kKeywordDefaults, kClosure, kGlobals, kBuiltins };
/// The slot of a part in the function object; the slot may be empty.
[[nodiscard]] PyObject** function_slot(py::Borrowed function, FunctionPart part);

/// The object that a weak reference points to, or a context variable holds; null without an exception when there is
/// none.
[[nodiscard]] py::Ref referent_of(py::Borrowed reference);

/// Items of a container; -1 for other objects.
[[nodiscard]] std::int64_t length_of(py::Borrowed container);

/// The items of a list, tuple or set, as a list, and the keys of a dict in their order, as a tuple: as the built-in
/// class itself gives them, whatever a subclass does. New references.
[[nodiscard]] py::Ref items_of(py::Borrowed container);
[[nodiscard]] py::Ref keys_of(py::Borrowed dict);

/// The object that the module `builtins` has under a name (borrowed), or null without an exception. The current frame
/// may have others in their place, or none: that of a namedtuple's `__new__` has none.
[[nodiscard]] PyObject* builtin_object(const char* name);

/// Whether this is a `functools.partial`, and no instance of a subclass of it.
[[nodiscard]] bool is_partial(py::Borrowed object);

/// The object that a method was taken of, in Python or C, which methods are compared by; null for all else, without an
/// exception.
[[nodiscard]] py::Ref self_of_method(py::Borrowed method);

}  // namespace thunder::interpreter
