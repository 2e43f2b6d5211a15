#pragma once

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// `collections.deque`, which has no C API. The functions below do what the class in C does, past methods of a
/// subclass.
[[nodiscard]] PyTypeObject* deque_type();
[[nodiscard]] bool is_deque(py::Borrowed object);
/// Whether it has a `maxlen`.
[[nodiscard]] bool is_limited_deque(py::Borrowed deque);
/// Borrowed; null without an exception past the end.
[[nodiscard]] py::Borrowed deque_item(py::Borrowed deque, Py_ssize_t index);
/// A list of the items.
[[nodiscard]] py::Ref deque_items(py::Borrowed deque);
/// Appends the items of a list; 0 or -1.
int extend_deque(py::Borrowed deque, py::Borrowed items);
/// Gives a deque the items of a list instead of its own; 0 or -1.
int replace_deque(py::Borrowed deque, py::Borrowed items);

}  // namespace thunder::interpreter
