#pragma once

#include "interpreter/python/cpython_compat.h"

#include <type_traits>

#include "interpreter/loop/context.h"
#include "interpreter/loop/observer.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

/// Objects whose parts nobody observes.
inline bool is_scalar(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type || object == Py_None ||
         type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type || type == &PyCode_Type ||
         type == &PyEllipsis_Type;
}

/// `operation(object)` on what a `weakref.proxy` stands for, which does all that is done with the proxy.
template <typename Operation>
auto on_referent(Observer& observer, PyObject* proxy, Operation&& operation) -> decltype(operation(proxy)) {
  using Result = decltype(operation(proxy));
  const py::Ref object = py::Ref::steal(observer.referent(proxy));
  if (object) return operation(object.get());
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ReferenceError, "weakly-referenced object no longer exists");
  if constexpr (std::is_same_v<Result, int>) return -1;
  return Result{};
}

/// Whether `type` inherits `name` from a class statement's function, so that the interpreter sees inside.
inline bool has_python_method(PyTypeObject* type, PyObject* name) {
  PyObject* method = _PyType_Lookup(type, name);
  return method != nullptr && PyFunction_Check(method);
}

// Each does what its namesake in CPython's API does, and reports it. New references; null, -1 or false on errors.
PyObject* observed_get_attribute(Observer& observer, PyObject* owner, PyObject* name);
int observed_set_attribute(Observer& observer, PyObject* owner, PyObject* name, PyObject* value);
PyObject* observed_get_item(Observer& observer, PyObject* owner, PyObject* key);
int observed_set_item(Observer& observer, PyObject* owner, PyObject* key, PyObject* value);
/// `object.__getattribute__` and `object.__setattr__`, as a Python method of that name calls them.
PyObject* observed_generic_get(Observer& observer, PyObject* owner, PyObject* name);
/// Reports an absent attribute, whose AttributeError is pending; false when something else is.
bool observed_missing(Observer& observer, PyObject* owner, PyObject* name);
int observed_generic_set(Observer& observer, PyObject* owner, PyObject* name, PyObject* value);
int observed_is_true(Observer& observer, PyObject* object);
int observed_contains(Observer& observer, PyObject* container, PyObject* value);
PyObject* observed_binary(Observer& observer, PyObject* left, PyObject* right, binaryfunc operation);
PyObject* observed_compare(Observer& observer, PyObject* left, PyObject* right, int operation);

/// `value` (stolen) came out of `iterator`.
PyObject* observed_next_value(Observer& observer, PyObject* iterator, PyObject* value);
/// Values are about to be taken out of `iterator`.
bool observed_advance(Observer& observer, PyObject* iterator);
/// `iterable` is about to be iterated over.
bool observed_get_iterator(Observer& observer, PyObject* iterable);
/// The program takes all values out of `*iterable` or `*mapping`, which becomes what it takes them from.
bool observed_spread(Observer& observer, PyObject** iterable);
bool observed_spread_mapping(Observer& observer, PyObject** mapping);
/// Tells the observer that special methods, by their names, are looked up in the class of `object`.
bool observed_look_up(Observer& observer, PyObject* object, const char* names);
/// A key of a dict or a member of a set that is hashed and compared with those that are there.
void observed_key(Observer& observer, PyObject* key, PyObject* container);
/// Filtered `Observer::examine`, `before_write` and `receive`.
bool observed_examine(Observer& observer, PyObject* object, Aspect aspect);
bool observed_write(Observer& observer, PyObject* owner, WriteKind kind, PyObject* key);
PyObject* observed_receive(Observer& observer, PyObject* value);
/// Filtered `Observer::given`.
PyObject* observed_given(Observer& observer, PyObject* value);

/// Before a call of a Python function: true with `*result` when the call is done (null: failed). If false, the frame of
/// the call is expected next.
bool observed_enter(Context& context, PyObject* function, PyObject** arguments, std::size_t count, PyObject* names,
                    PyObject** result);
/// Gives the program its view of the arguments that code in C brought, such as those of a `functools.partial`.
bool observed_arguments(Observer& observer, PyObject** locals, const PyCodeObject* code);
/// `PyObject_Vectorcall` with the events of a call; `count` is without the offset flag, `arguments[-1]` is ours.
PyObject* observed_call(Context& context, PyObject* callable, PyObject** arguments, std::size_t count, PyObject* names);
/// `PyObject_Vectorcall` of code in C, with the events of such a call.
PyObject* observed_native_call(Observer& observer, PyObject* callable, PyObject* const* arguments, std::size_t count,
                               PyObject* names);
/// `callable(*arguments, **keywords)`; `keywords` may be null.
PyObject* observed_call_spread(Context& context, PyObject* callable, PyObject* arguments, PyObject* keywords);

}  // namespace thunder::interpreter
