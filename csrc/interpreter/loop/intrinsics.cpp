#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/intrinsics.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "interpreter/loop/observe.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/method_wrapper.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

namespace {

Observer& observer_of(const IntrinsicCall& call) { return *call.context.observer; }
PyObject* none_if(int status) { return status == 0 ? Py_NewRef(Py_None) : nullptr; }
PyObject* boolean(int status) { return status < 0 ? nullptr : Py_NewRef(status != 0 ? Py_True : Py_False); }

bool check_name(PyObject* name, const char* function) {
  if (PyUnicode_Check(name)) return true;
  PyErr_Format(PyExc_TypeError, "%s(): attribute name must be string", function);
  return false;
}

/// The call as it stands, without an event: a view reads nothing by itself, iterating over it does.
PyObject* do_silently(const IntrinsicCall& call) {
  const std::size_t skipped = call.is_bound ? 1 : 0;
  return PyObject_Vectorcall(call.callable, call.arguments + skipped, call.count - skipped, nullptr);
}

PyObject* do_getattr(const IntrinsicCall& call) {
  if (!PyUnicode_Check(call.arguments[1])) {
    PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'", Py_TYPE(call.arguments[1])->tp_name);
    return nullptr;
  }
  PyObject* value = observed_get_attribute(observer_of(call), call.arguments[0], call.arguments[1]);
  if (value != nullptr || call.count < 3 || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return Py_NewRef(call.arguments[2]);
}

PyObject* do_hasattr(const IntrinsicCall& call) {
  if (!check_name(call.arguments[1], "hasattr")) return nullptr;
  const py::Ref value = py::Ref::steal(observed_get_attribute(observer_of(call), call.arguments[0], call.arguments[1]));
  if (!value) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
  }
  return boolean(value ? 1 : 0);
}

/// Whether a name is no string, which CPython refuses.
bool has_bad_name(const IntrinsicCall& call) { return PyUnicode_Check(call.arguments[1]) == 0; }

PyObject* do_setattr(const IntrinsicCall& call) {
  if (has_bad_name(call)) return do_silently(call);
  return none_if(observed_set_attribute(observer_of(call), call.arguments[0], call.arguments[1], call.arguments[2]));
}
PyObject* do_delattr(const IntrinsicCall& call) {
  if (has_bad_name(call)) return do_silently(call);
  return none_if(observed_set_attribute(observer_of(call), call.arguments[0], call.arguments[1], nullptr));
}

PyObject* do_object_getattribute(const IntrinsicCall& call) {
  if (has_bad_name(call)) return do_silently(call);
  return observed_generic_get(observer_of(call), call.arguments[0], call.arguments[1]);
}
/// `type.__getattribute__(cls, name)`, past a `__getattribute__` of a metaclass.
PyObject* do_type_getattribute(const IntrinsicCall& call) {
  PyObject *owner = call.arguments[0], *name = call.arguments[1];
  const bool is_overridden = !PyType_Check(owner) || Py_TYPE(owner)->tp_getattro != PyType_Type.tp_getattro;
  if (!is_overridden || !PyUnicode_Check(name)) return observed_get_attribute(observer_of(call), owner, name);
  py::Ref value = py::Ref::steal(PyType_Check(owner) ? PyType_Type.tp_getattro(owner, name) : nullptr);
  const bool is_own = value && _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), name) != nullptr;
  const AttributeSource source = is_own ? AttributeSource::kTypeObject : AttributeSource::kComputed;
  if (value) return observer_of(call).read_attribute(owner, name, source, value.release());
  observed_missing(observer_of(call), owner, name);
  return nullptr;
}

/// The function in C by which objects of a class have their attributes set, past a `__setattr__` in Python.
setattrofunc native_setter(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type->tp_setattro;
}

/// The function in C of a slot's method, bound or not.
const void* function_of_slot(PyObject* callable) {
  const MethodWrapper* wrapper = method_wrapper(callable);
  return wrapper != nullptr ? wrapper->descriptor->d_wrapped
                            : reinterpret_cast<PyWrapperDescrObject*>(callable)->d_wrapped;
}

/// `object.__setattr__(owner, name, value)`, or that of another class: CPython refuses it for objects whose attributes
/// are set by another function in C.
PyObject* set_past_python(const IntrinsicCall& call, PyObject* value) {
  PyObject *owner = call.arguments[0], *name = call.arguments[1];
  const setattrofunc setter = native_setter(Py_TYPE(owner));
  if (has_bad_name(call)) return do_silently(call);
  const bool is_refused = function_of_slot(call.callable) != reinterpret_cast<const void*>(setter);
  if (!is_refused && setter == PyObject_GenericSetAttr) {
    return none_if(observed_generic_set(observer_of(call), owner, name, value));
  }
  const WriteKind kind = value != nullptr ? WriteKind::kAttribute : WriteKind::kDeleteAttribute;
  if (!is_refused && !observer_of(call).before_write(owner, kind, name)) return nullptr;
  PyObject* result = do_silently(call);
  if (!is_refused) observer_of(call).after_write();
  return result;
}
PyObject* do_object_setattr(const IntrinsicCall& call) { return set_past_python(call, call.arguments[2]); }
PyObject* do_object_delattr(const IntrinsicCall& call) { return set_past_python(call, nullptr); }

PyObject* do_len(const IntrinsicCall& call) {
  if (!observed_examine(observer_of(call), call.arguments[0], Aspect::kLength)) return nullptr;
  return observer_of(call).length(call.arguments[0]);
}

/// `isinstance` and `issubclass` are about to ask the classes of these classes.
bool look_up_checks(Observer& observer, PyObject* classes, const char* name) {
  if (!PyTuple_Check(classes)) return observed_look_up(observer, classes, name);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    if (!look_up_checks(observer, PyTuple_GET_ITEM(classes, i), name)) return false;
  }
  return true;
}

/// `isinstance` and `issubclass` depend on the bases of a class, which may be set: `A.__bases__ = …`.
bool read_bases(Observer& observer, PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__mro__");
  if (!is_python_class(type) || is_immutable_type(type)) return true;
  return static_cast<bool>(py::Ref::steal(observer.read_attribute(
      reinterpret_cast<PyObject*>(type), name, AttributeSource::kDescriptor, Py_NewRef(type->tp_mro))));
}

PyObject* do_isinstance(const IntrinsicCall& call) {
  if (!observed_examine(observer_of(call), call.arguments[0], Aspect::kType)) return nullptr;
  if (!read_bases(observer_of(call), Py_TYPE(call.arguments[0]))) return nullptr;
  if (!look_up_checks(observer_of(call), call.arguments[1], "__instancecheck__")) return nullptr;
  return boolean(observer_of(call).is_instance(call.arguments[0], call.arguments[1]));
}

PyObject* do_type(const IntrinsicCall& call) {
  PyTypeObject* type = Py_TYPE(call.arguments[0]);
  if (!observed_examine(observer_of(call), call.arguments[0], Aspect::kType)) return nullptr;
  const bool is_plain = type->tp_getattro == PyObject_GenericGetAttr || PyType_Check(call.arguments[0]);
  if (!is_plain && !is_python_class(type)) {
    // An observer's own class may stand for another one.
    PyObject* result = nullptr;
    const int status = observer_of(call).before_native_call(call.callable, call.arguments, 1, nullptr, &result);
    if (status != 0) return status > 0 ? result : nullptr;
  }
  return Py_NewRef(reinterpret_cast<PyObject*>(type));
}

PyObject* do_bool(const IntrinsicCall& call) { return boolean(observed_is_true(observer_of(call), call.arguments[0])); }

PyObject* do_iter(const IntrinsicCall& call) {
  if (!observed_get_iterator(observer_of(call), call.arguments[0])) return nullptr;
  return PyObject_GetIter(call.arguments[0]);
}

PyObject* do_next(const IntrinsicCall& call) {
  PyObject* iterator = call.arguments[0];
  if (!PyIter_Check(iterator)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator", Py_TYPE(iterator)->tp_name);
    return nullptr;
  }
  if (!observed_advance(observer_of(call), iterator)) return nullptr;
  PyObject* value = Py_TYPE(iterator)->tp_iternext(iterator);
  if (value != nullptr) return observed_next_value(observer_of(call), iterator, value);
  if (PyErr_Occurred() && (call.count < 2 || !PyErr_ExceptionMatches(PyExc_StopIteration))) return nullptr;
  PyErr_Clear();
  if (call.count == 2) return Py_NewRef(call.arguments[1]);
  PyErr_SetNone(PyExc_StopIteration);
  return nullptr;
}

PyObject* do_dict_get(const IntrinsicCall& call) {
  PyObject* value = PyDict_GetItemWithError(call.arguments[0], call.arguments[1]);
  if (value != nullptr) return observer_of(call).read_item(call.arguments[0], call.arguments[1], Py_NewRef(value));
  if (PyErr_Occurred() || !observer_of(call).examine_presence(call.arguments[0], call.arguments[1])) return nullptr;
  return Py_NewRef(call.count > 2 ? call.arguments[2] : Py_None);
}

/// `PyDict_GetItemWithError` wants a dict, which the unbound method checks only later.
PyObject* do_dict_get_checked(const IntrinsicCall& call) {
  if (PyDict_Check(call.arguments[0])) return do_dict_get(call);
  PyErr_Format(PyExc_TypeError, "descriptor 'get' for 'dict' objects doesn't apply to a '%.200s' object",
               Py_TYPE(call.arguments[0])->tp_name);
  return nullptr;
}

/// `dict.__getitem__`, `list.__getitem__`: past a Python `__getitem__` of a subclass.
template <PyTypeObject* kType>
PyObject* do_getitem(const IntrinsicCall& call) {
  PyObject* owner = call.arguments[0];
  if (!PyObject_TypeCheck(owner, kType)) {
    PyErr_Format(PyExc_TypeError, "descriptor '__getitem__' requires a '%s' object but received a '%.200s'",
                 kType->tp_name, Py_TYPE(owner)->tp_name);
    return nullptr;
  }
  PyObject* value = kType->tp_as_mapping->mp_subscript(owner, call.arguments[1]);
  return value != nullptr ? observer_of(call).read_item(owner, call.arguments[1], value) : nullptr;
}

PyObject* do_dict_contains(const IntrinsicCall& call) {
  if (!PyDict_Check(call.arguments[0])) {
    PyErr_Format(PyExc_TypeError, "descriptor '__contains__' requires a 'dict' object but received a '%.200s'",
                 Py_TYPE(call.arguments[0])->tp_name);
    return nullptr;
  }
  if (!observer_of(call).examine_presence(call.arguments[0], call.arguments[1])) return nullptr;
  return boolean(PyDict_Contains(call.arguments[0], call.arguments[1]));
}

/// As if there were no row.
PyObject* do_observed(const IntrinsicCall& call) {
  const std::size_t skipped = call.is_bound ? 1 : 0;
  return observed_native_call(observer_of(call), call.callable, call.arguments + skipped, call.count - skipped,
                              nullptr);
}

PyObject* do_issubclass(const IntrinsicCall& call) {
  PyObject* derived = call.arguments[0];
  const bool is_class = PyType_Check(derived);
  if (is_class && !read_bases(observer_of(call), reinterpret_cast<PyTypeObject*>(derived))) return nullptr;
  return look_up_checks(observer_of(call), call.arguments[1], "__subclasscheck__") ? do_observed(call) : nullptr;
}

/// A method of a read-only proxy (`vars(cls).get(name)`) does the same as that of the dict behind it.
template <PyObject* (*kOfDict)(const IntrinsicCall&)>
PyObject* do_of_proxy(const IntrinsicCall& call) {
  PyObject* owner = call.arguments[0];
  PyObject* dict = Py_TYPE(owner) == &PyDictProxy_Type ? mapping_behind(owner) : nullptr;
  if (dict == nullptr || !PyDict_CheckExact(dict)) return do_observed(call);
  PyObject* arguments[3] = {dict};
  std::copy_n(call.arguments + 1, call.count - 1, arguments + 1);
  return kOfDict({call.context, arguments, call.count, call.callable, false});
}

struct NamedRow {
  const char* owner;  ///< a builtin type, or null for builtin functions
  const char* name;
  IntrinsicRow row;
};

constexpr NamedRow kRows[] = {
    {nullptr, "getattr", {do_getattr, 2, 3}},
    {nullptr, "hasattr", {do_hasattr, 2, 2}},
    {nullptr, "setattr", {do_setattr, 3, 3}},
    {nullptr, "delattr", {do_delattr, 2, 2}},
    {nullptr, "len", {do_len, 1, 1}},
    {nullptr, "isinstance", {do_isinstance, 2, 2}},
    {nullptr, "issubclass", {do_issubclass, 2, 2}},
    {nullptr, "iter", {do_iter, 1, 1}},
    {nullptr, "next", {do_next, 1, 2}},
    {nullptr, "type", {do_type, 1, 1}},
    {nullptr, "bool", {do_bool, 1, 1}},
    {"object", "__getattribute__", {do_object_getattribute, 2, 2}},
    {"object", "__setattr__", {do_object_setattr, 3, 3}},
    {"object", "__delattr__", {do_object_delattr, 2, 2}},
    {"type", "__getattribute__", {do_type_getattribute, 2, 2}},
    {"dict", "get", {do_dict_get_checked, 2, 3}},
    {"dict", "__getitem__", {do_getitem<&PyDict_Type>, 2, 2}},
    {"list", "__getitem__", {do_getitem<&PyList_Type>, 2, 2}},
    {"dict", "__contains__", {do_dict_contains, 2, 2}},
    {"dict", "keys", {do_silently, 1, 1}},
    {"dict", "values", {do_silently, 1, 1}},
    {"dict", "items", {do_silently, 1, 1}},
    {"mappingproxy", "get", {do_of_proxy<do_dict_get>, 2, 3}},
    {"mappingproxy", "__contains__", {do_of_proxy<do_dict_contains>, 2, 2}},
    {"mappingproxy", "keys", {do_silently, 1, 1}},
    {"mappingproxy", "values", {do_silently, 1, 1}},
    {"mappingproxy", "items", {do_silently, 1, 1}},
};

/// `__setattr__` and `__delattr__` are one function in C, so the slot tells them apart; but that of `type` has another
/// function in the same slot.
const void* identity_of_slot(const PyWrapperDescrObject* descriptor) {
  const auto* const function = descriptor->d_wrapped;
  const bool is_of_type = function == reinterpret_cast<void*>(PyType_Type.tp_setattro) ||
                          function == reinterpret_cast<void*>(PyType_Type.tp_getattro);
  return is_of_type ? function : static_cast<const void*>(descriptor->d_base);
}

PyObject* owner_of(const NamedRow& row) {
  const bool is_proxy = std::string_view(row.owner) == "mappingproxy";
  return is_proxy ? reinterpret_cast<PyObject*>(&PyDictProxy_Type) : builtin_object(row.owner);
}

/// An address that all objects for one builtin share: `dict.get`, `{}.get` and bound copies of it.
const void* identity_of(PyObject* callable, PyObject** self) {
  *self = nullptr;
  if (PyCFunction_Check(callable)) {
    PyObject* bound = PyCFunction_GET_SELF(callable);
    if (bound != nullptr && !PyModule_Check(bound)) *self = bound;
    return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  }
  if (Py_TYPE(callable) == &PyMethodDescr_Type) return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (Py_TYPE(callable) == &PyWrapperDescr_Type) {
    return identity_of_slot(reinterpret_cast<PyWrapperDescrObject*>(callable));
  }
  if (const MethodWrapper* wrapper = method_wrapper(callable)) {
    *self = wrapper->self;
    return identity_of_slot(wrapper->descriptor);
  }
  return PyType_Check(callable) ? callable : nullptr;
}

std::unordered_map<const void*, const IntrinsicRow*> make_table() {
  std::unordered_map<const void*, const IntrinsicRow*> table;
  for (const NamedRow& named : kRows) {
    PyObject* owner = named.owner != nullptr ? owner_of(named) : nullptr;
    const py::Ref callable = py::Ref::steal(owner != nullptr ? PyObject_GetAttrString(owner, named.name)
                                                             : Py_XNewRef(builtin_object(named.name)));
    PyObject* self = nullptr;
    const void* identity = callable ? identity_of(callable.get(), &self) : nullptr;
    if (identity != nullptr)
      table.emplace(identity, &named.row);
    else
      PyErr_Clear();
  }
  return table;
}

}  // namespace

namespace {

const std::unordered_map<const void*, const IntrinsicRow*>& all_rows() {
  static const auto* table = new std::unordered_map<const void*, const IntrinsicRow*>(make_table());
  return *table;
}

}  // namespace

void prepare_intrinsics() { static_cast<void>(all_rows()); }

const IntrinsicRow* find_intrinsic(PyObject* callable, PyObject** self) {
  const auto& table = all_rows();
  const auto found = table.find(identity_of(callable, self));
  return found != table.end() ? found->second : nullptr;
}

}  // namespace thunder::interpreter
