#pragma once

// The only place, beside the opcode tables, that knows how CPython's versions differ.

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
// C's <stdatomic.h> does not compile as C++: CPython falls back to compiler built-ins of the same layout.
#undef HAVE_STD_ATOMIC

extern "C" {
#include <frameobject.h>
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_gc.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_object.h>
#include <internal/pycore_pystate.h>
#include <opcode.h>
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030c0000
#include <internal/pycore_long.h>
#endif
#if PY_VERSION_HEX >= 0x030d0000
#include <internal/pycore_list.h>
#include <internal/pycore_pyerrors.h>
#include <internal/pycore_setobject.h>
#include <internal/pycore_unicodeobject.h>
#endif
}

#include <cstddef>
#include <cstdint>

#define THUNDER_INLINE inline __attribute__((always_inline))

namespace thunder::interpreter {

/// Lets an object that the garbage collector knows die without a call of its `__del__`.
inline void skip_finalizer(PyObject* object) { _PyGC_SET_FINALIZED(object); }

#if PY_VERSION_HEX >= 0x030b0000
using Frame = _PyInterpreterFrame;
#else
using Frame = PyFrameObject;
#endif

/// One code unit. The layout is CPython's on every version.
struct Instruction {
  std::uint8_t opcode;
  std::uint8_t argument;
};
static_assert(sizeof(Instruction) == sizeof(_Py_CODEUNIT));

/// Owned bytes of `code` as the compiler made them: neither specialized nor instrumented.
inline PyObject* original_bytecode(PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030b0000
  return PyCode_GetCode(code);
#else
  return Py_NewRef(code->co_code);
#endif
}

THUNDER_INLINE PyCodeObject* code_of(const Frame* frame) {
#if PY_VERSION_HEX >= 0x030d0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

#if PY_VERSION_HEX >= 0x030c0000
THUNDER_INLINE PyFunctionObject* function_of(const Frame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}
#elif PY_VERSION_HEX >= 0x030b0000
THUNDER_INLINE PyFunctionObject* function_of(const Frame* frame) { return frame->f_func; }
#endif

#if PY_VERSION_HEX < 0x030c0000
inline Py_ssize_t request_code_slot(freefunc release) { return _PyEval_RequestCodeExtraIndex(release); }
inline void* get_code_slot(PyCodeObject* code, Py_ssize_t index) {
  void* value = nullptr;
  _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), index, &value);
  return value;
}
inline int set_code_slot(PyCodeObject* code, Py_ssize_t index, void* value) {
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
#else
inline Py_ssize_t request_code_slot(freefunc release) { return PyUnstable_Eval_RequestCodeExtraIndex(release); }
inline void* get_code_slot(PyCodeObject* code, Py_ssize_t index) {
  void* value = nullptr;
  PyUnstable_Code_GetExtra(reinterpret_cast<PyObject*>(code), index, &value);
  return value;
}
inline int set_code_slot(PyCodeObject* code, Py_ssize_t index, void* value) {
  return PyUnstable_Code_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
#endif

/// Whether something waits to be done between two instructions: a signal, a pending call, another thread.
THUNDER_INLINE bool eval_breaker_is_set(PyThreadState* tstate) {
#if PY_VERSION_HEX >= 0x030d0000
  return (_Py_atomic_load_uintptr_relaxed(&tstate->eval_breaker) & _PY_EVAL_EVENTS_MASK) != 0;
#elif PY_VERSION_HEX >= 0x030c0000
  return __atomic_load_n(&tstate->interp->ceval.eval_breaker._value, __ATOMIC_RELAXED) != 0;
#elif PY_VERSION_HEX >= 0x030b0000
  return __atomic_load_n(&tstate->interp->ceval.eval_breaker._value, __ATOMIC_RELAXED) != 0;
#else
  return __atomic_load_n(&tstate->interp->ceval.eval_breaker._value, __ATOMIC_RELAXED) != 0;
#endif
}

/// Grows when another thread gets the GIL: while it stays, nobody but this thread has run Python, or changed its
/// objects.
inline unsigned long gil_switches() {
#if PY_VERSION_HEX >= 0x030c0000
  return PyInterpreterState_Get()->ceval.gil->switch_number;
#else
  return _PyRuntime.ceval.gil.switch_number;
#endif
}

/// The value of an exact int of one digit; false for others.
THUNDER_INLINE bool small_integer(PyObject* object, std::int64_t* value) {
  if (!PyLong_CheckExact(object)) return false;
  const auto* number = reinterpret_cast<const PyLongObject*>(object);
#if PY_VERSION_HEX >= 0x030c0000
  if (!_PyLong_IsCompact(number)) return false;
  *value = _PyLong_CompactValue(number);
#else
  const Py_ssize_t size = Py_SIZE(number);
  if (size < -1 || size > 1) return false;
  *value = size == 0 ? 0 : size * static_cast<std::int64_t>(number->ob_digit[0]);
#endif
  return true;
}

/// A borrowed view of the pending exception state of this thread: `PyErr_Fetch` as one normalized, owned object.
inline PyObject* take_exception() {
#if PY_VERSION_HEX >= 0x030c0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return nullptr;
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

/// Makes `exception` (stolen) pending as it is: its context and traceback stay.
inline void restore_exception(PyObject* exception) {
#if PY_VERSION_HEX >= 0x030c0000
  PyErr_SetRaisedException(exception);
#else
  PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exception)), exception, PyException_GetTraceback(exception));
#endif
}

/// The functions of a property, borrowed; null where it has none. They are the first fields of CPython's object.
struct PropertyAccessors {
  PyObject* get;
  PyObject* set;
};
inline PropertyAccessors property_accessors(PyObject* property) {
  auto* const* fields = reinterpret_cast<PyObject* const*>(reinterpret_cast<char*>(property) + sizeof(PyObject));
  return {fields[0], fields[1]};
}

/// `-1` with an exception, 0 when absent, 1 with a new reference.
inline int lookup_attribute(PyObject* owner, PyObject* name, PyObject** value) {
#if PY_VERSION_HEX >= 0x030d0000
  return PyObject_GetOptionalAttr(owner, name, value);
#else
  return _PyObject_LookupAttr(owner, name, value);
#endif
}

/// The mapping's value as a new reference, or null, with an exception only on failure.
inline PyObject* lookup_item(PyObject* mapping, PyObject* key) {
  if (PyDict_CheckExact(mapping)) return Py_XNewRef(PyDict_GetItemWithError(mapping, key));
  PyObject* value = PyObject_GetItem(mapping, key);
  if (value == nullptr && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

/// `int` of a Python int, or -1 with OverflowError or TypeError.
inline int as_int(PyObject* number) {
#if PY_VERSION_HEX >= 0x030d0000
  return PyLong_AsInt(number);
#else
  return _PyLong_AsInt(number);
#endif
}

/// The builtin `__import__` that the import statement bypasses.
inline PyObject* import_function() {
#if PY_VERSION_HEX >= 0x030c0000
  return PyInterpreterState_Get()->imports.import_func;
#else
  return PyInterpreterState_Get()->import_func;
#endif
}

inline bool has_instance_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030b0000
  if (PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)) return true;
#endif
  return type->tp_dictoffset != 0;
}

/// The `__dict__` of an instance as far as it is made: null where attributes lie in the object, or there are none.
inline PyObject* dict_that_is_made(PyObject* object) {
#if PY_VERSION_HEX >= 0x030b0000
  if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
#if PY_VERSION_HEX >= 0x030d0000
    return reinterpret_cast<PyObject*>(_PyObject_ManagedDictPointer(object)->dict);
#elif PY_VERSION_HEX >= 0x030c0000
    const PyDictOrValues place = *_PyObject_DictOrValuesPointer(object);
    return _PyDictOrValues_IsValues(place) ? nullptr : _PyDictOrValues_GetDict(place);
#else
    return *_PyObject_ManagedDictPointer(object);
#endif
  }
#endif
  PyObject** place = has_instance_dict(Py_TYPE(object)) ? _PyObject_GetDictPtr(object) : nullptr;
  return place == nullptr ? nullptr : *place;
}

/// How many attributes lie in the object while it has no `__dict__`.
inline int count_of_inline_attributes(PyObject* object) {
#if PY_VERSION_HEX >= 0x030d0000
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES)) return 0;
  const PyDictValues* values = _PyObject_InlineValues(object);
  return values->valid != 0 ? values->size : 0;
#elif PY_VERSION_HEX >= 0x030b0000
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) return 0;
#if PY_VERSION_HEX >= 0x030c0000
  const PyDictOrValues place = *_PyObject_DictOrValuesPointer(object);
  if (!_PyDictOrValues_IsValues(place)) return 0;
  const PyDictValues* values = _PyDictOrValues_GetValues(place);
#else
  const PyDictValues* values = *_PyObject_ValuesPointer(object);
  if (values == nullptr) return 0;
#endif
  return reinterpret_cast<const std::uint8_t*>(values)[-2];  // they were set in an order, which has this length
#else
  static_cast<void>(object);
  return 0;
#endif
}

}  // namespace thunder::interpreter
