#pragma once

#include <Python.h>
#include <c10/core/SymInt.h>

#include <memory>
#include <optional>

#include "dispatch/python/errors.h"
#include "ir/size.h"
#include "tracer/size_node.h"

namespace thunder::dispatch {

// The contents of a size number (size_number.h), without the arithmetic of its class.

struct SizeClass {
  PyTypeObject* type = nullptr;  ///< null: not made yet
  Py_ssize_t node_offset = 0;    ///< where an object has its parts, behind all that `torch.SymInt` has
};
inline SizeClass size_class;

struct Size {
  std::shared_ptr<tracer::SizeScope> scope;  ///< the recording that it belongs to
  ir::Dim dim;
};

[[nodiscard]] bool is_size_number(PyObject* object);

/// nullopt: it is no such number.
[[nodiscard]] std::optional<Size> size_of(PyObject* object);
[[nodiscard]] std::optional<ir::Dim> dim_of_size_number(PyObject* object);

/// The node that an object of pybind11 holds; null: it is something else.
[[nodiscard]] c10::SymNode unwrapped_node(PyObject* object);

/// The parts of a number that `torch.SymInt` lacks.
struct SizeParts {
  PyObject* node;
  PyObject* type;  ///< see `type_of_size`
};
[[nodiscard]] SizeParts& parts_of_size(PyObject* number);

/// The type that the number has in Python: one of NumPy's integers, which `numpy.prod` gives; null: `int`.
[[nodiscard]] PyObject* type_of_size(PyObject* number);
/// An int (stolen) as a number of such a type (new reference, or null with an exception set).
[[nodiscard]] PyObject* int_as(PyObject* type, PyObject* number);
/// A size, or an int, as a number of such a type (new reference, or null with an exception set).
[[nodiscard]] PyObject* size_as(PyObject* type, PyObject* number);

/// The number for a size, a plain one where that is known (new reference), or null with an exception set.
[[nodiscard]] PyObject* make_size(const std::shared_ptr<tracer::SizeScope>& scope, const ir::Dim& dim,
                                  PyObject* type = nullptr);
[[nodiscard]] PyObject* make_size_number(const c10::SymInt& size);

/// The plain number, to which the trace is tied from now on (new reference, or null with an exception set).
[[nodiscard]] PyObject* look_at_size(PyObject* number);

/// Runs what may throw; null with a Python exception set.
template <typename Function>
PyObject* or_python_error(Function&& function) {
  try {
    return function();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace thunder::dispatch
