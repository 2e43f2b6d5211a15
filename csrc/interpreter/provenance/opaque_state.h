#pragma once

#include <cstdint>
#include <string>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// The kind of state that C code can see in an object besides the parts that are read one by one.
enum class StateKind : std::uint8_t {
  kNone,        ///< nothing, or its parts say it all
  kIdentity,    ///< unknown: the object is guarded as such
  kValue,       ///< a value that does not change: a subclass of int or str, a slice, a date
  kBuffer,      ///< memory: bytearray, array, an array of NumPy
  kMemo,        ///< a result that a function under functools.lru_cache keeps
  kSubclasses,  ///< which classes derive from a class
  kHidden,      ///< names of the class that attributes of the object hide
};

/// The class in C that a class is or builds on.
[[nodiscard]] PyTypeObject* native_base(PyTypeObject* type);

[[nodiscard]] StateKind state_kind(py::Borrowed object);
/// Whether such a state may change while the object stays.
[[nodiscard]] constexpr bool may_change(StateKind kind) {
  return kind == StateKind::kBuffer || kind == StateKind::kMemo || kind == StateKind::kSubclasses ||
         kind == StateKind::kHidden;
}
/// Whether it is an array's `flat` of NumPy.
[[nodiscard]] bool is_flat_iterator(py::Borrowed object);
/// Cheap: whether `state_kind` is kValue.
[[nodiscard]] bool is_plain_value(py::Borrowed object);

/// The copy of an object's state that a guard keeps: its memory, or the object itself, by a weak reference where the
/// type has them and only the identity counts; that of a kMemo is the entry of the cache, that of kSubclasses a list of
/// weak references, that of kHidden a tuple. Null with an exception set.
[[nodiscard]] py::Ref state_of(py::Borrowed object, StateKind kind);
/// Whether an object, of the type that the guarded one had, is in that state. Runs no user code, raises nothing.
[[nodiscard]] bool has_state(py::Borrowed object, StateKind kind, py::Borrowed state);
/// For people: the state of an object like `object`.
[[nodiscard]] std::string describe_state(py::Borrowed object, StateKind kind, py::Borrowed state);
/// Puts memory back as `state_of` saw it; 0 or -1.
int restore_buffer(py::Borrowed object, py::Borrowed state);

}  // namespace thunder::interpreter
