#pragma once

#include "interpreter/provenance/journal_record.h"

namespace thunder::interpreter {

/// A new container with the items of `container`, without running user code; null with an exception set.
[[nodiscard]] py::Ref copy_of(py::Borrowed container, Store store);
/// The items of a dict in the order in which it gives them, which for an OrderedDict is not that of its memory.
[[nodiscard]] py::Ref copy_of_dict(py::Borrowed dict);
/// Whether a dict holds the keys of `before` in their order, followed by new ones.
[[nodiscard]] bool begins_with_keys(py::Borrowed dict, py::Borrowed before);
/// Whether a container has the very items, in the same order, of a copy that was made of it.
[[nodiscard]] bool holds_same(py::Borrowed container, py::Borrowed copy);
/// Puts back what `record` remembers; exceptions are dropped.
void restore(const Record& record);
/// The container, cell or slot as it is now.
[[nodiscard]] py::Ref contents_of(const Record& record);
/// Contents from before with the writes of the program; exceptions are dropped.
[[nodiscard]] py::Ref with_writes(const Record& record);
/// Whether the container, cell or slot may hold anything that the program has not left there.
[[nodiscard]] bool holds_others(const Record& record);
/// Undoes in `target`, the container or a copy of it, what the program did; what others did stays. Exceptions are
/// dropped.
void withdraw(const Record& record, py::Borrowed target);

/// The value behind a C descriptor of an object, or an attribute that a type itself holds: a static method is not
/// unwrapped, and inherited attributes do not count. Null without an exception where there is nothing.
py::Ref get_slot(py::Borrowed owner, py::Borrowed name);
/// Sets (null: deletes) the value behind a C descriptor of an object, or an attribute of a type; 0 or -1.
int set_slot(py::Borrowed owner, py::Borrowed name, py::Borrowed value);

/// Gives a dict the items of another, in their order; 0 or -1.
int replace_dict(py::Borrowed dict, py::Borrowed contents);

// Sets an item with the method of `dict` itself, past those of a Python subclass; 0 or -1.
int set_dict_item(py::Borrowed dict, py::Borrowed key, py::Borrowed value);
/// Deletes an item as `set_dict_item` sets one; a key that is absent is no error.
int delete_dict_item(py::Borrowed dict, py::Borrowed key);

}  // namespace thunder::interpreter
