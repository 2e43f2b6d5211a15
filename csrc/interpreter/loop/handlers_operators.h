#pragma once

// Unary, binary and comparison operators, subscripts and slices.

#include "interpreter/loop/machine.h"
#include "interpreter/loop/observe.h"

namespace thunder::interpreter {

inline PyObject* power(PyObject* left, PyObject* right) { return PyNumber_Power(left, right, Py_None); }
inline PyObject* inplace_power(PyObject* left, PyObject* right) { return PyNumber_InPlacePower(left, right, Py_None); }

/// The unary operators, on the topmost value.
template <bool kObserved, unaryfunc kOperation>
THUNDER_INLINE Step unary(Machine& m) {
  if constexpr (kObserved) {
    if (!observed_look_up(*m.observer, m.top(), "__neg__ __pos__ __invert__")) return Step::kError;
    if (!observed_examine(*m.observer, m.top(), Aspect::kContents)) return Step::kError;
  }
  return m.replace_top(kOperation(m.top()));
}
THUNDER_HANDLER(unary_positive) { return unary<kObserved, PyNumber_Positive>(m); }
THUNDER_HANDLER(unary_negative) { return unary<kObserved, PyNumber_Negative>(m); }
THUNDER_HANDLER(unary_invert) { return unary<kObserved, PyNumber_Invert>(m); }

/// `bool(value)`, or -1.
template <bool kObserved>
THUNDER_INLINE int truth(Machine& m, PyObject* value) {
  if (value == Py_True) return 1;
  if (value == Py_False || value == Py_None) return 0;
  if constexpr (kObserved) return observed_is_true(*m.observer, value);
  return PyObject_IsTrue(value);
}

THUNDER_HANDLER(unary_not) {
  const int value = truth<kObserved>(m, m.top());
  return m.replace_top(value < 0 ? nullptr : Py_NewRef(value == 0 ? Py_True : Py_False));
}

/// Replaces the two topmost values.
THUNDER_INLINE Step replace_two(Machine& m, PyObject* result) {
  PyObject* right = m.pop();
  PyObject* left = m.pop();
  if (result != nullptr) m.push(result);
  Py_DECREF(left);
  Py_DECREF(right);
  return result != nullptr ? Step::kNext : Step::kError;
}

#if PY_VERSION_HEX >= 0x030b0000

/// In the order of CPython's NB_* numbers.
inline constexpr binaryfunc kBinaryOperations[] = {
    PyNumber_Add,
    PyNumber_And,
    PyNumber_FloorDivide,
    PyNumber_Lshift,
    PyNumber_MatrixMultiply,
    PyNumber_Multiply,
    PyNumber_Remainder,
    PyNumber_Or,
    power,
    PyNumber_Rshift,
    PyNumber_Subtract,
    PyNumber_TrueDivide,
    PyNumber_Xor,
    PyNumber_InPlaceAdd,
    PyNumber_InPlaceAnd,
    PyNumber_InPlaceFloorDivide,
    PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceMultiply,
    PyNumber_InPlaceRemainder,
    PyNumber_InPlaceOr,
    inplace_power,
    PyNumber_InPlaceRshift,
    PyNumber_InPlaceSubtract,
    PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceXor,
};

/// The result for small ints where it costs less than a call; null without an exception otherwise.
THUNDER_INLINE PyObject* small_binary(PyObject* left, PyObject* right, int operation) {
  std::int64_t a, b;
  if (!small_integer(left, &a) || !small_integer(right, &b)) return nullptr;
  switch (operation) {
    case NB_ADD:
    case NB_INPLACE_ADD:
      return PyLong_FromLong(a + b);
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT:
      return PyLong_FromLong(a - b);
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY:
      return PyLong_FromLong(a * b);
    case NB_AND:
    case NB_INPLACE_AND:
      return PyLong_FromLong(a & b);
    default:
      return nullptr;
  }
}

THUNDER_INLINE PyObject* float_binary(PyObject* left, PyObject* right, int operation) {
  if (!PyFloat_CheckExact(left) || !PyFloat_CheckExact(right)) return nullptr;
  const double a = PyFloat_AS_DOUBLE(left);
  const double b = PyFloat_AS_DOUBLE(right);
  switch (operation) {
    case NB_ADD:
    case NB_INPLACE_ADD:
      return PyFloat_FromDouble(a + b);
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT:
      return PyFloat_FromDouble(a - b);
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY:
      return PyFloat_FromDouble(a * b);
    default:
      return nullptr;
  }
}

/// `left + right` of strings whose result goes to the local variable that holds `left`: grows it in place.
THUNDER_INLINE Step append_string(Machine& m, int local) {
  PyObject* right = m.pop();
  PyObject* left = m.pop();
  m.set_local(local, nullptr);
  PyUnicode_Append(&left, right);
  Py_DECREF(right);
  return m.push_result(left);
}

THUNDER_HANDLER(binary_op) {
  PyObject* left = m.peek(2);
  PyObject* right = m.top();
  PyObject* result = small_binary(left, right, argument);
  if (result == nullptr) result = float_binary(left, right, argument);
  if (result != nullptr) return replace_two(m, result);
  if ((argument == NB_ADD || argument == NB_INPLACE_ADD) && PyUnicode_CheckExact(left) && PyUnicode_CheckExact(right)) {
    if (m.pc->opcode == STORE_FAST && m.locals[m.pc->argument] == left) return append_string(m, m.pc->argument);
    return replace_two(m, PyUnicode_Concat(left, right));
  }
  const binaryfunc operation = kBinaryOperations[argument];
  if constexpr (kObserved) return replace_two(m, observed_binary(*m.observer, left, right, operation));
  return replace_two(m, operation(left, right));
}

#endif

/// The result for small ints, or null.
THUNDER_INLINE PyObject* small_compare(PyObject* left, PyObject* right, int operation) {
  std::int64_t a, b;
  if (!small_integer(left, &a) || !small_integer(right, &b)) return nullptr;
  bool result = false;
  switch (operation) {
    case Py_LT:
      result = a < b;
      break;
    case Py_LE:
      result = a <= b;
      break;
    case Py_EQ:
      result = a == b;
      break;
    case Py_NE:
      result = a != b;
      break;
    case Py_GT:
      result = a > b;
      break;
    default:
      result = a >= b;
      break;
  }
  return Py_NewRef(result ? Py_True : Py_False);
}

template <bool kObserved>
THUNDER_INLINE PyObject* compare_top(Machine& m, int operation) {
  PyObject* result = small_compare(m.peek(2), m.top(), operation);
  if (result != nullptr) return result;
  if constexpr (kObserved) return observed_compare(*m.observer, m.peek(2), m.top(), operation);
  return PyObject_RichCompare(m.peek(2), m.top(), operation);
}

THUNDER_HANDLER(compare_op) { return replace_two(m, compare_top<kObserved>(m, argument)); }
/// 3.12: the operator stands above four bits of hints.
THUNDER_HANDLER(compare_op_hinted) { return replace_two(m, compare_top<kObserved>(m, argument >> 4)); }
/// 3.13: the operator stands above five bits, one of which asks for a bool.
THUNDER_HANDLER(compare_op_bool) {
  PyObject* result = compare_top<kObserved>(m, argument >> 5);
  if (result != nullptr && (argument & 16) != 0 && !PyBool_Check(result)) {
    const int value = truth<kObserved>(m, result);
    Py_DECREF(result);
    result = value < 0 ? nullptr : Py_NewRef(value != 0 ? Py_True : Py_False);
  }
  return replace_two(m, result);
}

THUNDER_HANDLER(is_op) {
  int same = static_cast<int>(m.peek(2) == m.top());
  if constexpr (kObserved) {
    const bool is_single = m.top() == Py_None || PyBool_Check(m.top());
    if (!is_single) same = m.observer->is_same(m.peek(2), m.top());
    if (same < 0) return Step::kError;
  }
  return replace_two(m, Py_NewRef((same != 0) != (argument != 0) ? Py_True : Py_False));
}

THUNDER_HANDLER(contains_op) {
  int found;
  if constexpr (kObserved)
    found = observed_contains(*m.observer, m.top(), m.peek(2));
  else
    found = PySequence_Contains(m.top(), m.peek(2));
  return replace_two(m, found < 0 ? nullptr : Py_NewRef((found != 0) != (argument != 0) ? Py_True : Py_False));
}

/// An item of an exact list or tuple at a small int, borrowed; null otherwise.
THUNDER_INLINE PyObject* indexed_item(PyObject* container, PyObject* key) {
  std::int64_t index;
  if (PyList_CheckExact(container)) {
    if (small_integer(key, &index) && index >= 0 && index < PyList_GET_SIZE(container))
      return PyList_GET_ITEM(container, index);
  } else if (PyTuple_CheckExact(container)) {
    if (small_integer(key, &index) && index >= 0 && index < PyTuple_GET_SIZE(container))
      return PyTuple_GET_ITEM(container, index);
  }
  return nullptr;
}

THUNDER_HANDLER(binary_subscr) {
  if constexpr (kObserved) return replace_two(m, observed_get_item(*m.observer, m.peek(2), m.top()));
  PyObject* item = indexed_item(m.peek(2), m.top());
  return replace_two(m, item != nullptr ? Py_NewRef(item) : PyObject_GetItem(m.peek(2), m.top()));
}

template <bool kObserved>
THUNDER_INLINE int assign_item(Machine& m, PyObject* container, PyObject* key, PyObject* value) {
  if constexpr (kObserved) return observed_set_item(*m.observer, container, key, value);
  return value != nullptr ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
}

THUNDER_HANDLER(store_subscr) {
  PyObject* key = m.pop();
  PyObject* container = m.pop();
  PyObject* value = m.pop();
  const int status = assign_item<kObserved>(m, container, key, value);
  Py_DECREF(value);
  Py_DECREF(container);
  Py_DECREF(key);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(delete_subscr) {
  PyObject* key = m.pop();
  PyObject* container = m.pop();
  const int status = assign_item<kObserved>(m, container, key, nullptr);
  Py_DECREF(container);
  Py_DECREF(key);
  return status == 0 ? Step::kNext : Step::kError;
}

THUNDER_HANDLER(build_slice) {
  PyObject* step = argument == 3 ? m.pop() : nullptr;
  PyObject* slice = PySlice_New(m.peek(2), m.top(), step);
  Py_XDECREF(step);
  return replace_two(m, slice);
}

/// 3.12: `container[start:stop]` without a slice on the stack.
THUNDER_HANDLER(binary_slice) {
  PyObject* slice = PySlice_New(m.peek(2), m.top(), nullptr);
  const Step built = replace_two(m, slice);
  return built == Step::kNext ? binary_subscr<kObserved>(m, 0) : built;
}

THUNDER_HANDLER(store_slice) {
  PyObject* slice = PySlice_New(m.peek(2), m.top(), nullptr);
  const Step built = replace_two(m, slice);
  return built == Step::kNext ? store_subscr<kObserved>(m, 0) : built;
}

}  // namespace thunder::interpreter
