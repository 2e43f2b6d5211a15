#include "interpreter/python/cpython_compat.h"

#include "interpreter/guards/guard_step.h"

#include "interpreter/guards/weak_keys.h"
#include "interpreter/loop/thread_local.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

// The hash of a string is known after its first use; other keys are numbers and tuples, whose hashing runs no user
// code.
py::Borrowed dict_item(py::Borrowed dict, py::Borrowed key) {
  if (!PyDict_Check(dict)) return nullptr;
  const Py_hash_t hash = PyObject_Hash(key);
  PyObject* value = hash == -1 ? nullptr : _PyDict_GetItem_KnownHash(dict, key, hash);
  if (value == nullptr && PyErr_Occurred() != nullptr) PyErr_Clear();
  return value;
}

py::Borrowed existing_dict(py::Borrowed object, GuardScratch& scratch) {
  if (PyModule_Check(object)) return PyModule_GetDict(object);
  if (PyType_Check(object)) return nullptr;
#if PY_VERSION_HEX < 0x030d0000
  PyObject** place = _PyObject_GetDictPtr(object);
  if (place == nullptr) return nullptr;
  if (*place != nullptr) return *place;
#endif
  return scratch.keep(instance_dict(object).release());
}

py::Borrowed item_of(py::Borrowed sequence, std::int64_t index) {
  if (PyList_Check(sequence) || PyTuple_Check(sequence)) {
    return index < Py_SIZE(sequence) ? PySequence_Fast_GET_ITEM(sequence, index) : nullptr;
  }
  return is_deque(sequence) ? deque_item(sequence, index) : nullptr;
}

py::Borrowed through_descriptor(py::Borrowed object, py::Borrowed name, GuardScratch& scratch) {
  static PyObject* const dict = PyUnicode_InternFromString("__dict__");
  const bool is_thread_dict = name == dict && is_thread_local(object);
  PyObject* value = is_thread_dict ? thread_dict(object).release() : PyObject_GenericGetAttr(object, name);
  if (value == nullptr) PyErr_Clear();
  return scratch.keep(value);
}

py::Ref result_of(py::Borrowed function) {
  py::Ref result = py::Ref::steal(PyObject_CallNoArgs(function));
  if (!result) PyErr_Clear();
  return result;
}

py::Ref converted(py::Borrowed function, py::Borrowed object) {
  py::Ref result = py::Ref::steal(PyObject_CallOneArg(function, object));
  if (!result) PyErr_Clear();
  return result;
}

bool is_same_key(py::Borrowed left, py::Borrowed right) {
  if (left == right) return true;
  if (PyTuple_CheckExact(left) && PyTuple_CheckExact(right)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(left);
    if (size != PyTuple_GET_SIZE(right)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!is_same_key(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
    }
    return true;
  }
  const bool is_user_object = is_python_class(Py_TYPE(left));
  return !is_user_object && equal_constants(left, right);
}

/// As `is_same_key`; `right` is as `weak_key` made it.
bool is_weak_key(py::Borrowed left, py::Borrowed right) {
  if (PyWeakref_CheckRefExact(right)) return PyWeakref_GET_OBJECT(right) == left;
  if (!PyTuple_CheckExact(right)) return is_same_key(left, right);
  const bool has_size = PyTuple_CheckExact(left) && PyTuple_GET_SIZE(left) == PyTuple_GET_SIZE(right);
  for (Py_ssize_t i = 0; has_size && i < PyTuple_GET_SIZE(right); ++i) {
    if (!is_weak_key(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
  }
  return has_size;
}

using KeyComparison = bool (*)(py::Borrowed, py::Borrowed);

bool has_ordered_keys(py::Borrowed dict, py::Borrowed keys, KeyComparison is_same) {
  const py::Ref now = keys_of(dict);
  if (!now) return PyErr_Clear(), false;
  if (PyTuple_GET_SIZE(now.get()) != PyTuple_GET_SIZE(keys)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    if (!is_same(PyTuple_GET_ITEM(now.get(), i), PyTuple_GET_ITEM(keys, i))) return false;
  }
  return true;
}

bool has_keys(py::Borrowed dict, py::Borrowed keys, KeyComparison is_same) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  if (PyODict_Check(static_cast<PyObject*>(dict))) return has_ordered_keys(dict, keys, is_same);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); ++i) {
    if (!is_same(key, PyTuple_GET_ITEM(keys, i))) return false;
  }
  return true;
}

bool has_members(py::Borrowed set, py::Borrowed members, KeyComparison is_same) {
  if (!PyAnySet_Check(set) || PySet_GET_SIZE(set) != PyTuple_GET_SIZE(members)) return false;
  PyObject* member;
  Py_ssize_t position = 0;
  Py_hash_t hash;
  for (Py_ssize_t i = 0; _PySet_NextEntry(set, &position, &member, &hash) != 0; ++i) {
    if (!is_same(member, PyTuple_GET_ITEM(members, i))) return false;
  }
  return true;
}

/// `number` as of kContains.
bool contains(py::Borrowed set, py::Borrowed member, std::int64_t number) {
  const py::Ref key = (number & kHeldWeakly) != 0 ? strong_key(member) : py::Ref::share(member);
  if (!key || !PyAnySet_Check(set)) return false;
  const int found = PySet_Contains(set, key.get());
  if (found < 0) PyErr_Clear();
  return found >= 0 && found == (number & 1);
}

}  // namespace

bool is_held_weakly(GuardOp op, std::int64_t number) {
  const bool has_key =
      op == GuardOp::kLoadDictItem || op == GuardOp::kKeys || op == GuardOp::kMembers || op == GuardOp::kContains;
  return has_key && (number & kHeldWeakly) != 0;
}

PyObject* load_part(GuardOp op, py::Borrowed owner, std::int64_t number, py::Borrowed object, GuardScratch& scratch) {
  switch (op) {
    case GuardOp::kLoadDict:
      return existing_dict(owner, scratch);
    case GuardOp::kLoadItem:
      return item_of(owner, number);
    case GuardOp::kLoadCell:
      return PyCell_Check(owner) ? PyCell_GET(owner) : nullptr;
    case GuardOp::kLoadDescriptor:
      return through_descriptor(owner, object, scratch);
    case GuardOp::kLoadDictItem: {
      if (number == 0) return dict_item(owner, object);
      const py::Ref key = strong_key(object);
      return key ? dict_item(owner, key.get()) : nullptr;
    }
    case GuardOp::kLoadTypeAttribute:
      return PyType_Check(owner) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), object) : nullptr;
    case GuardOp::kLoadFunctionPart:
      return PyFunction_Check(owner) ? *function_slot(owner, static_cast<FunctionPart>(number)) : nullptr;
    case GuardOp::kLoadReferent:
      return scratch.keep(referent_of(owner).release());
    case GuardOp::kLoadCall:
      return scratch.keep(result_of(owner).release());
    case GuardOp::kLoadConversion:
      return scratch.keep(converted(object, owner).release());
    default:
      return nullptr;
  }
}

bool check_value(GuardOp op, py::Borrowed value, std::int64_t number, py::Borrowed object) {
  if (value == nullptr) return op == GuardOp::kAbsent;
  const KeyComparison is_same = is_held_weakly(op, number) ? is_weak_key : is_same_key;
  switch (op) {
    case GuardOp::kPresent:
      return true;
    case GuardOp::kIs:
      return value == object;
    case GuardOp::kEqual:
      return equal_constants(object, value);
    case GuardOp::kType:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == object;
    case GuardOp::kLength:
      return length_of(value) == number;
    case GuardOp::kTruth:
      return (length_of(value) != 0) == (number != 0);
    case GuardOp::kKeys:
      return has_keys(value, object, is_same);
    case GuardOp::kMembers:
      return has_members(value, object, is_same);
    case GuardOp::kContains:
      return contains(value, object, number);
    case GuardOp::kState:
      return has_state(value, static_cast<StateKind>(number), object);
    default:
      return false;
  }
}

}  // namespace thunder::interpreter
