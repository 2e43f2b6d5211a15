#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/provenance_constant.h"

#include <array>
#include <cmath>
#include <cstring>

#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/opaque_state.h"

namespace thunder::interpreter {
namespace {

// Types written in C whose instances have neither parts nor state that a program could change.
bool is_frozen_type(PyTypeObject* type) {
  static const std::array<PyTypeObject*, 13> frozen{
      &PyFunction_Type,     &PyModule_Type,      &PyCode_Type,           &PyMethodDescr_Type, &PyClassMethodDescr_Type,
      &PyWrapperDescr_Type, &PyGetSetDescr_Type, &PyMemberDescr_Type,    &PyProperty_Type,    &PyStaticMethod_Type,
      &PyClassMethod_Type,  &PyEllipsis_Type,    &_PyNotImplemented_Type};
  for (const PyTypeObject* candidate : frozen) {
    if (type == candidate) return true;
  }
  return false;
}

/// `list[int]` and `int | str`.
bool is_type_expression(const PyTypeObject* type) {
  return type == &Py_GenericAliasType || std::strcmp(type->tp_name, "types.UnionType") == 0;
}

/// Whether the parts of two type expressions are the same, in their order: `int | str == str | int`.
bool same_arguments(py::Borrowed left, py::Borrowed right) {
  const py::Ref first = py::Ref::steal(PyObject_GetAttrString(left, "__args__"));
  const py::Ref second = py::Ref::steal(PyObject_GetAttrString(right, "__args__"));
  PyErr_Clear();
  return first && second && equal_constants(first.get(), second.get());
}

bool is_free_function(py::Borrowed value) {
  if (!PyCFunction_Check(value)) return false;
  PyObject* self = PyCFunction_GET_SELF(value);
  return self == nullptr || PyModule_Check(self) || PyType_Check(self);
}

/// A tuple of constants, at most so many tuples deep, is a constant. A deeper one is known by what is read of it.
ConstantKind classify_tuple(py::Borrowed tuple, const TensorHooks& hooks, int depth) {
  constexpr int kDeepest = 32;
  if (depth > kDeepest) return ConstantKind::kUnknown;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    const ConstantKind kind = PyTuple_CheckExact(item) ? classify_tuple(item, hooks, depth + 1) : classify(item, hooks);
    if (kind == ConstantKind::kUnknown) return ConstantKind::kUnknown;
  }
  return ConstantKind::kEquality;
}

}  // namespace

bool is_enumeration_member(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && std::strcmp(Py_TYPE(type)->tp_name, "EnumType") == 0;
}

ConstantKind classify(py::Borrowed value, const TensorHooks& hooks) {
  PyTypeObject* type = Py_TYPE(value);
  if (value == Py_None || type == &PyBool_Type) return ConstantKind::kIdentity;
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBytes_Type ||
      type == &PyComplex_Type || type == &PyRange_Type || is_type_expression(type)) {
    return ConstantKind::kEquality;
  }
  if (type == &PyTuple_Type) return classify_tuple(value, hooks, 1);
  if (PyType_Check(value) || is_frozen_type(type) || is_free_function(value) || is_enumeration_member(type)) {
    return ConstantKind::kIdentity;
  }
  return hooks.classify(value);
}

bool equal_constants(py::Borrowed left, py::Borrowed right) {
  if (left == right) return true;
  PyTypeObject* type = Py_TYPE(left);
  if (type != Py_TYPE(right)) return false;
  if (type == &PyFloat_Type) {
    const double first = PyFloat_AS_DOUBLE(left);
    const double second = PyFloat_AS_DOUBLE(right);
    return std::memcmp(&first, &second, sizeof first) == 0;
  }
  if (type == &PyTuple_Type) {
    const Py_ssize_t size = PyTuple_GET_SIZE(left);
    if (size != PyTuple_GET_SIZE(right)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!equal_constants(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
    }
    return true;
  }
  if (type == &PyComplex_Type) {
    const Py_complex first = PyComplex_AsCComplex(left);
    const Py_complex second = PyComplex_AsCComplex(right);
    return std::memcmp(&first, &second, sizeof first) == 0;
  }
  if (type == &PyFrozenSet_Type) return equal_constants(members_of(left).get(), members_of(right).get());
  const int equal = PyObject_RichCompareBool(left, right, Py_EQ);
  if (equal < 0) PyErr_Clear();
  if (equal > 0 && is_type_expression(type)) return same_arguments(left, right);
  // `Decimal("1.0")` and `Decimal("1.00")` are equal, and so are `range(0, 3, 2)` and `range(0, 4, 2)`.
  return equal > 0 && (!is_plain_value(left) || has_state(right, StateKind::kValue, left));
}

bool is_nan(py::Borrowed value) { return PyFloat_CheckExact(value) && std::isnan(PyFloat_AS_DOUBLE(value)); }

py::Ref instance_dict(py::Borrowed object) {
  if (PyModule_Check(object)) return py::Ref::share(PyModule_GetDict(object));
  if (PyType_Check(object) || _PyObject_GetDictPtr(object) == nullptr) return nullptr;
  py::Ref dict = py::Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return dict;
}

bool is_changing_int(py::Borrowed value, const TensorHooks& hooks) {
  if (!hooks.is_number(value)) return hooks.is_size(value);
  return PyObject_IsInstance(value, reinterpret_cast<PyObject*>(&PyLong_Type)) == 1;
}

int is_kept_int(py::Borrowed number) {
  constexpr long kLeast = -5, kMost = 256;
  const py::Ref least = py::Ref::steal(PyLong_FromLong(kLeast)), most = py::Ref::steal(PyLong_FromLong(kMost));
  if (!least || !most) return -1;
  const int is_above = PyObject_RichCompareBool(number, least.get(), Py_GE);
  return is_above == 1 ? PyObject_RichCompareBool(number, most.get(), Py_LE) : is_above;
}

bool is_real_tensor(py::Borrowed value, const TensorHooks& hooks) {
  constexpr unsigned long kNeverTensor =
      Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS |
      Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS | Py_TPFLAGS_BASE_EXC_SUBCLASS | Py_TPFLAGS_TYPE_SUBCLASS;
  PyTypeObject* type = Py_TYPE(value);
  if ((type->tp_flags & kNeverTensor) != 0 || value == Py_None || type == &PyFloat_Type || type == &PyFunction_Type) {
    return false;
  }
  return hooks.is_real_tensor(value);
}

}  // namespace thunder::interpreter
