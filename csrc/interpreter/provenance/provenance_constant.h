#pragma once

#include "interpreter/python/python_ref.h"
#include "interpreter/python/tensor_hooks.h"

namespace thunder::interpreter {

/// How a value that was read is guarded, when it is a constant for the program: numbers, strings and tuples of such by
/// equality; functions, types, modules, enumeration members by identity. `hooks` decides about torch's own.
[[nodiscard]] ConstantKind classify(py::Borrowed value, const TensorHooks& hooks);

[[nodiscard]] bool is_enumeration_member(PyTypeObject* type);

/// Whether a value is a tensor from outside of the trace; quick for common values that are none.
[[nodiscard]] bool is_real_tensor(py::Borrowed value, const TensorHooks& hooks);

[[nodiscard]] inline bool is_spelled(py::Borrowed name, const char* spelling) {
  return PyUnicode_CompareWithASCIIString(name, spelling) == 0;
}

/// Same type and same value, to the last bit; runs no user code for what `classify` calls kEquality.
[[nodiscard]] bool equal_constants(py::Borrowed left, py::Borrowed right);

/// Whether it stands for an int that other calls have another one for.
[[nodiscard]] bool is_changing_int(py::Borrowed value, const TensorHooks& hooks);

/// Whether Python has one object for all ints of this value; -1 with an exception.
[[nodiscard]] int is_kept_int(py::Borrowed number);

/// A float that is no number: containers tell two of them apart by their identity.
[[nodiscard]] bool is_nan(py::Borrowed value);

/// The `__dict__` of an instance or module, made if need be; null without an exception when it has none.
[[nodiscard]] py::Ref instance_dict(py::Borrowed object);

}  // namespace thunder::interpreter
