#include "interpreter/python/cpython_compat.h"

#include <string_view>
#include <utility>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/observe.h"
#include "interpreter/loop/thread_local.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

namespace {

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

constexpr const char* kDescriptorMethods = "__get__ __set__ __delete__";

/// Whether a property's accessor is written in C, as those of pybind11's classes: nobody sees what it reads or writes.
bool is_native_accessor(PyObject* accessor) {
  if (accessor == nullptr) return false;
  PyObject* function = PyInstanceMethod_Check(accessor) ? PyInstanceMethod_GET_FUNCTION(accessor) : accessor;
  return PyCFunction_Check(function) || Py_TYPE(function) == &PyMethodDescr_Type;
}

/// Whether reading through `descriptor` runs Python code.
bool reads_by_python(PyObject* descriptor) {
  static PyObject* get = interned("__get__");
  if (Py_TYPE(descriptor) == &PyProperty_Type) return !is_native_accessor(property_accessors(descriptor).get);
  return has_python_method(Py_TYPE(descriptor), get);
}

bool writes_by_python(PyObject* descriptor) {
  static PyObject* set = interned("__set__");
  if (Py_TYPE(descriptor) == &PyProperty_Type) return !is_native_accessor(property_accessors(descriptor).set);
  return has_python_method(Py_TYPE(descriptor), set);
}

/// A function in Python that calls the accessor of a property which a class in Python has from C (`property(len)`), so
/// that its reads and writes are seen; null for other accessors.
py::Ref seen_accessor(PyTypeObject* type, PyObject* accessor) {
  if (accessor == nullptr || accessor == Py_None || !is_python_class(type)) return nullptr;
  if (PyFunction_Check(accessor) || PyInstanceMethod_Check(accessor)) return nullptr;
  py::Ref getter = interpreted_getter(accessor);
  return getter ? std::move(getter) : interpreted_call(accessor);
}

bool is_data_descriptor(PyObject* attribute) {
  return attribute != nullptr && Py_TYPE(attribute)->tp_descr_get != nullptr &&
         Py_TYPE(attribute)->tp_descr_set != nullptr;
}

AttributeSource source_of_type_attribute(PyObject* attribute, AttributeSource plain) {
  if (Py_TYPE(attribute)->tp_descr_get != nullptr && reads_by_python(attribute)) return AttributeSource::kComputed;
  return is_data_descriptor(attribute) ? AttributeSource::kDescriptor : plain;
}

/// Reports that a descriptor with a `__get__` in Python is read from a class: the method may read what it holds.
bool report_descriptor(Observer& observer, PyTypeObject* type, PyObject* name, PyObject* descriptor) {
  if (Py_TYPE(descriptor) == &PyProperty_Type) return true;
  const py::Ref read = py::Ref::steal(observer.read_attribute(reinterpret_cast<PyObject*>(type), name,
                                                              AttributeSource::kTypeObject, Py_NewRef(descriptor)));
  return static_cast<bool>(read);
}

/// A value, or null with an exception, and where the value lies.
using Found = std::pair<PyObject*, AttributeSource>;

/// Looks an attribute up as `object.__getattribute__` does.
Found find_generic(Observer& observer, PyObject* owner, PyObject* name) {
  static PyObject* const dict_name = interned("__dict__");
  PyTypeObject* type = Py_TYPE(owner);
  const bool is_local = is_thread_local(owner);
  if (is_local && name == dict_name) return {thread_dict(owner).release(), AttributeSource::kDescriptor};
  const py::Ref attribute = py::Ref::share(_PyType_Lookup(type, name));
  if (attribute && !observed_look_up(observer, attribute.get(), kDescriptorMethods))
    return {nullptr, AttributeSource::kType};
  if (!is_data_descriptor(attribute.get()) && (is_local || has_instance_dict(type))) {
    const py::Ref dict = is_local ? thread_dict(owner) : py::Ref::steal(PyObject_GenericGetDict(owner, nullptr));
    if (!dict) return {nullptr, AttributeSource::kInstance};
    PyObject* value = PyDict_GetItemWithError(dict.get(), name);
    if (value != nullptr)
      return {Py_NewRef(value), PyModule_Check(owner) ? AttributeSource::kModule : AttributeSource::kInstance};
    if (PyErr_Occurred()) return {nullptr, AttributeSource::kInstance};
  }
  if (attribute && Py_TYPE(attribute.get()) == &PyProperty_Type) {
    const py::Ref getter = seen_accessor(type, property_accessors(attribute.get()).get);
    if (getter) return {PyObject_CallOneArg(getter.get(), owner), AttributeSource::kComputed};
  }
  const AttributeSource source =
      attribute ? source_of_type_attribute(attribute.get(), AttributeSource::kType) : AttributeSource::kComputed;
  if (attribute && source == AttributeSource::kComputed && !report_descriptor(observer, type, name, attribute.get()))
    return {nullptr, source};
  return {PyObject_GenericGetAttr(owner, name), source};
}

/// Looks an attribute of a class `owner` up as `type.__getattribute__` does.
Found find_in_class(Observer& observer, PyObject* owner, PyObject* name) {
  PyObject* meta_attribute = _PyType_Lookup(Py_TYPE(owner), name);
  AttributeSource source = AttributeSource::kComputed;
  if (meta_attribute != nullptr && !observed_look_up(observer, meta_attribute, kDescriptorMethods))
    return {nullptr, source};
  if (is_data_descriptor(meta_attribute)) {
    source = source_of_type_attribute(meta_attribute, AttributeSource::kType);
  } else if (PyObject* attribute = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), name)) {
    if (!observed_look_up(observer, attribute, "__get__")) return {nullptr, source};
    const bool computed = Py_TYPE(attribute)->tp_descr_get != nullptr && Py_TYPE(attribute) != &PyProperty_Type &&
                          reads_by_python(attribute);
    source = computed ? AttributeSource::kComputed : AttributeSource::kTypeObject;
    auto* type = reinterpret_cast<PyTypeObject*>(owner);
    if (computed && !report_descriptor(observer, type, name, attribute)) return {nullptr, source};
  } else if (meta_attribute != nullptr) {
    source = source_of_type_attribute(meta_attribute, AttributeSource::kType);
  }
  const bool is_of_metaclass = source == AttributeSource::kComputed && meta_attribute != nullptr;
  if (is_of_metaclass && !report_descriptor(observer, Py_TYPE(owner), name, meta_attribute)) return {nullptr, source};
  return {PyObject_GetAttr(owner, name), source};
}

/// The class behind `super` that has the attribute, null if there is none.
PyTypeObject* class_behind_super(PyObject* super, PyObject* name) {
  const py::Ref first = py::Ref::steal(PyObject_GetAttrString(super, "__thisclass__"));
  const py::Ref last = py::Ref::steal(PyObject_GetAttrString(super, "__self_class__"));
  PyErr_Clear();
  if (!first || !last || !PyType_Check(last.get())) return nullptr;
  PyObject* order = reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(last.get()))->tp_mro;
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    if (is_behind && PyDict_Contains(dict_of_type(base), name) == 1) return base;
    if (reinterpret_cast<PyObject*>(base) == first.get()) is_behind = true;
  }
  return nullptr;
}

/// The index of the item that a field of a named tuple is, a new reference; null without an exception: it is no field.
py::Ref index_of_field(PyObject* attribute) {
  // `_collections._tuplegetter`, or `collections._tuplegetter` from 3.12 on.
  if (!std::string_view(Py_TYPE(attribute)->tp_name).ends_with("collections._tuplegetter")) return nullptr;
  const py::Ref parts = py::Ref::steal(PyObject_CallMethod(attribute, "__reduce__", nullptr));
  PyObject* arguments = parts && PyTuple_GET_SIZE(parts.get()) > 1 ? PyTuple_GET_ITEM(parts.get(), 1) : nullptr;
  return arguments == nullptr ? (PyErr_Clear(), nullptr) : py::Ref::share(PyTuple_GET_ITEM(arguments, 0));
}

/// Whether `super().name` gives what an object of a class in C holds there: a slot, a field of a named tuple, or a
/// property such as `Exception.args`, where no class of the object has another one.
bool is_held_behind_super(PyObject* super, PyObject* name, PyObject* attribute) {
  if (Py_TYPE(attribute) == &PyMemberDescr_Type || index_of_field(attribute)) return true;
  if (Py_TYPE(attribute) != &PyGetSetDescr_Type) return false;
  const py::Ref object = py::Ref::steal(PyObject_GetAttrString(super, "__self__"));
  if (!object) return PyErr_Clear(), false;
  return _PyType_Lookup(Py_TYPE(object.get()), name) == attribute;
}

/// Reports the slot, or the field of a named tuple, that `super().name` gave, or the empty slot (`value` null, with an
/// AttributeError); steals `value`.
PyObject* report_slot_behind_super(Observer& observer, PyObject* super, PyObject* name, PyObject* slot,
                                   PyObject* value) {
  py::Ref found = py::Ref::steal(value);
  const py::Ref error = found ? py::Ref() : py::Ref::steal(take_exception());
  const py::Ref object = py::Ref::steal(PyObject_GetAttrString(super, "__self__"));
  if (!object) return nullptr;
  const py::Ref index = index_of_field(slot);
  if (found && index) return observer.read_item(object.get(), index.get(), found.release());
  if (_PyType_Lookup(Py_TYPE(object.get()), name) != slot) {
    PyErr_Format(PyExc_NotImplementedError,
                 "thunder.jit: super().%U reads a slot whose name the class '%.200s' has for something else", name,
                 Py_TYPE(object.get())->tp_name);
    return nullptr;
  }
  if (found) return observer.read_attribute(object.get(), name, AttributeSource::kDescriptor, found.release());
  if (observer.read_missing_attribute(object.get(), name)) restore_exception(Py_NewRef(error.get()));
  return nullptr;
}

/// Looks an attribute up as `super` does.
Found find_behind_super(Observer& observer, PyObject* super, PyObject* name) {
  PyTypeObject* type = class_behind_super(super, name);
  PyObject* attribute = type != nullptr ? _PyType_Lookup(type, name) : nullptr;
  if (attribute != nullptr && !observed_look_up(observer, attribute, "__get__"))
    return {nullptr, AttributeSource::kComputed};
  const bool is_computed =
      attribute != nullptr && Py_TYPE(attribute)->tp_descr_get != nullptr && reads_by_python(attribute);
  if (is_computed && !report_descriptor(observer, type, name, attribute)) return {nullptr, AttributeSource::kComputed};
  PyObject* value = PyObject_GetAttr(super, name);
  const bool is_held = attribute != nullptr && is_held_behind_super(super, name, attribute);
  if (is_held) value = report_slot_behind_super(observer, super, name, attribute, value);
  return {value, AttributeSource::kComputed};
}

PyObject* report(Observer& observer, PyObject* owner, PyObject* name, Found found) {
  return found.first != nullptr ? observer.read_attribute(owner, name, found.second, found.first) : nullptr;
}

/// Whether nobody observes what this `__getattr__` does.
bool is_native(Observer& observer, PyObject* method) {
  return PyFunction_Check(method) &&
         is_native(observer.treatment(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(method))));
}

/// The value of `__getattr__`, after the generic lookup failed with a pending AttributeError.
PyObject* call_getattr(Observer& observer, PyObject* owner, PyObject* name, PyObject* method) {
  const bool is_observed = !is_native(observer, method);
  if (is_observed && !observed_missing(observer, owner, name)) return nullptr;
  PyErr_Clear();
  static PyObject* getattr_name = interned("__getattr__");
  const descrgetfunc get = Py_TYPE(method)->tp_descr_get;
  py::Ref bound = interpreted_alias(owner, getattr_name);
  if (!bound) {
    bound = py::Ref::steal(get != nullptr ? get(method, owner, reinterpret_cast<PyObject*>(Py_TYPE(owner)))
                                          : Py_NewRef(method));
  }
  if (!bound) return nullptr;
  py::Ref value = py::Ref::steal(PyObject_CallOneArg(bound.get(), name));
  if (!is_observed) {
    // A value that `__getattr__` has stored in the object (`torch.ops`) counts as one that was there.
    if (!value) return observed_missing(observer, owner, name), nullptr;
    if (const Found kept = find_generic(observer, owner, name); kept.first != nullptr)
      return report(observer, owner, name, kept);
    if (!observed_missing(observer, owner, name)) return nullptr;
    PyErr_Clear();
  }
  return report(observer, owner, name, {value.release(), AttributeSource::kComputed});
}

/// Whether an object's type looks attributes up as `object`, a module or `threading.local` does, before any
/// `__getattr__`.
bool has_generic_lookup(PyObject* owner) {
  static PyObject* name = interned("__getattribute__");
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* found = _PyType_Lookup(type, name);
  if (found == nullptr || Py_TYPE(found) != &PyWrapperDescr_Type) return false;
  // Classes such as `dict` have one of their own around the same function.
  const void* function = reinterpret_cast<PyWrapperDescrObject*>(found)->d_wrapped;
  return function == reinterpret_cast<void*>(PyObject_GenericGetAttr) ||
         function == reinterpret_cast<void*>(PyModule_Type.tp_getattro) || is_thread_local(owner);
}

}  // namespace

bool observed_missing(Observer& observer, PyObject* owner, PyObject* name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  py::Ref error = py::Ref::steal(take_exception());
  if (!observer.read_missing_attribute(owner, name)) return false;
  restore_exception(error.release());
  return true;
}

PyObject* observed_generic_get(Observer& observer, PyObject* owner, PyObject* name) {
  const Found found = find_generic(observer, owner, name);
  if (found.first == nullptr) observed_missing(observer, owner, name);
  return report(observer, owner, name, found);
}

PyObject* observed_get_attribute(Observer& observer, PyObject* owner, PyObject* name) {
  static PyObject* getattr_name = interned("__getattr__");
  if (is_scalar(owner)) return PyObject_GetAttr(owner, name);
  if (PyWeakref_CheckProxy(owner)) {
    return on_referent(observer, owner,
                       [&](PyObject* object) { return observed_get_attribute(observer, object, name); });
  }
  PyTypeObject* type = Py_TYPE(owner);
  if (type->tp_getattro == PyObject_GenericGetAttr) return observed_generic_get(observer, owner, name);
  Found found{nullptr, AttributeSource::kComputed};
  PyObject* method = nullptr;
  if (type->tp_getattro == PyType_Type.tp_getattro) {
    found = find_in_class(observer, owner, name);
  } else if (type->tp_getattro == PyModule_Type.tp_getattro) {
    found = find_generic(observer, owner, name);
    if (found.first == nullptr) {
      if (!observed_missing(observer, owner, name)) return nullptr;
      PyErr_Clear();
      const py::Ref by_module = py::Ref::steal(observed_generic_get(observer, owner, getattr_name));  // there, or not
      PyErr_Clear();
      found = {PyObject_GetAttr(owner, name), AttributeSource::kComputed};
    }
  } else if (has_generic_lookup(owner)) {
    method = _PyType_Lookup(type, getattr_name);
    found = find_generic(observer, owner, name);
  } else if (PyObject_TypeCheck(owner, &PySuper_Type)) {
    found = find_behind_super(observer, owner, name);
  } else {
    // A class in C has a lookup of its own: `decimal.Context`.
    static PyObject* const getattribute_name = interned("__getattribute__");
    const bool is_seen = has_python_method(type, getattribute_name);
    if (!is_seen && !observer.examine(owner, Aspect::kContents)) return nullptr;
    found.first = PyObject_GetAttr(owner, name);
  }
  if (found.first == nullptr) {
    if (method != nullptr && PyErr_ExceptionMatches(PyExc_AttributeError))
      return call_getattr(observer, owner, name, method);
    observed_missing(observer, owner, name);
  }
  return report(observer, owner, name, found);
}

int observed_generic_set(Observer& observer, PyObject* owner, PyObject* name, PyObject* value) {
  // Also where a descriptor written in Python does it: the descriptor is read from the class, and may write to itself.
  const WriteKind kind = value != nullptr ? WriteKind::kAttribute : WriteKind::kDeleteAttribute;
  if (!observer.before_write(owner, kind, name)) return -1;
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* attribute = _PyType_Lookup(type, name);
  if (attribute != nullptr) observed_look_up(observer, attribute, "__set__ __delete__");
  if (attribute != nullptr && Py_TYPE(attribute) == &PyProperty_Type && value != nullptr) {
    const py::Ref setter = seen_accessor(type, property_accessors(attribute).set);
    if (setter) return py::Ref::steal(PyObject_CallFunctionObjArgs(setter.get(), owner, value, nullptr)) ? 0 : -1;
  }
  const int status = PyObject_GenericSetAttr(owner, name, value);
  observer.after_write();
  return status;
}

int observed_set_attribute(Observer& observer, PyObject* owner, PyObject* name, PyObject* value) {
  static PyObject* setattr_name = interned("__setattr__");
  static PyObject* delattr_name = interned("__delattr__");
  if (PyWeakref_CheckProxy(owner)) {
    return on_referent(observer, owner,
                       [&](PyObject* object) { return observed_set_attribute(observer, object, name, value); });
  }
  PyTypeObject* type = Py_TYPE(owner);
  const bool is_generic = type->tp_setattro == PyObject_GenericSetAttr;
  if (!is_generic && has_python_method(type, value != nullptr ? setattr_name : delattr_name))
    return PyObject_SetAttr(owner, name, value);
  if (!observed_look_up(observer, owner, value != nullptr ? "__setattr__" : "__delattr__")) return -1;
  if (is_generic) return observed_generic_set(observer, owner, name, value);
  if (const py::Ref setter = interpreted_alias(owner, value != nullptr ? setattr_name : delattr_name)) {
    return py::Ref::steal(PyObject_CallFunctionObjArgs(setter.get(), name, value, nullptr)) ? 0 : -1;
  }
  PyObject* attribute = _PyType_Lookup(type, name);
  const bool by_python =
      attribute != nullptr && Py_TYPE(attribute)->tp_descr_set != nullptr && writes_by_python(attribute);
  const WriteKind kind = value != nullptr ? WriteKind::kAttribute : WriteKind::kDeleteAttribute;
  if (!by_python && !observer.before_write(owner, kind, name)) return -1;
  const int status = PyObject_SetAttr(owner, name, value);
  if (!by_python) observer.after_write();
  return status;
}

}  // namespace thunder::interpreter
