#include "interpreter/loop/matching.h"

#include "interpreter/loop/observe.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

/// Collects the attributes of one class pattern.
class ClassMatch {
 public:
  ClassMatch(PyObject* subject, PyObject* kind, Observer* observer)
      : subject_(subject), kind_(reinterpret_cast<PyTypeObject*>(kind)), observer_(observer) {}

  /// False with an exception set, or without one when the pattern does not match.
  bool positional(Py_ssize_t count);
  bool attribute(PyObject* name);
  bool prepare() {
    seen_ = py::Ref::steal(PySet_New(nullptr));
    values_ = py::Ref::steal(PyList_New(0));
    return seen_ && values_;
  }
  PyObject* values() { return PyList_AsTuple(values_.get()); }

 private:
  [[nodiscard]] py::Ref get(PyObject* owner, PyObject* name) const {
    return py::Ref::steal(observer_ != nullptr ? observed_get_attribute(*observer_, owner, name)
                                               : PyObject_GetAttr(owner, name));
  }

  PyObject* subject_;
  PyTypeObject* kind_;
  Observer* observer_;
  py::Ref seen_;
  py::Ref values_;
};

bool ClassMatch::attribute(PyObject* name) {
  const int repeated = PySet_Contains(seen_.get(), name);
  if (repeated != 0) {
    if (repeated > 0)
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", kind_->tp_name, name);
    return false;
  }
  if (PySet_Add(seen_.get(), name) < 0) return false;
  const py::Ref value = get(subject_, name);
  if (value) return PyList_Append(values_.get(), value.get()) == 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return false;
}

bool ClassMatch::positional(Py_ssize_t count) {
  static PyObject* match_args = PyUnicode_InternFromString("__match_args__");
  auto* kind = reinterpret_cast<PyObject*>(kind_);
  py::Ref names = get(kind, match_args);
  bool takes_subject = false;
  if (!names) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
    // Only without `__match_args__`: subclasses of int, str, … that define it lose this.
    takes_subject = PyType_HasFeature(kind_, _Py_TPFLAGS_MATCH_SELF) != 0;
    names = py::Ref::steal(PyTuple_New(0));
    if (!names) return false;
  } else if (!PyTuple_CheckExact(names.get())) {
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", kind_->tp_name,
                 Py_TYPE(names.get())->tp_name);
    return false;
  }
  const Py_ssize_t allowed = takes_subject ? 1 : PyTuple_GET_SIZE(names.get());
  if (allowed < count) {
    PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)", kind_->tp_name, allowed,
                 allowed == 1 ? "" : "s", count);
    return false;
  }
  if (takes_subject) return PyList_Append(values_.get(), subject_) == 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    if (!PyUnicode_CheckExact(name)) {
      PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
      return false;
    }
    if (!attribute(name)) return false;
  }
  return true;
}

PyObject* no_match() { return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None); }

}  // namespace

PyObject* match_class(PyObject* subject, PyObject* kind, Py_ssize_t positional, PyObject* keywords,
                      Observer* observer) {
  if (!PyType_Check(kind)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a type");
    return nullptr;
  }
  if (observer != nullptr && !observed_examine(*observer, subject, Aspect::kType)) return nullptr;
  if (observer != nullptr && !observed_look_up(*observer, kind, "__instancecheck__")) return nullptr;
  const int is_instance =
      observer == nullptr ? PyObject_IsInstance(subject, kind) : observer->is_instance(subject, kind);
  if (is_instance <= 0) return is_instance < 0 ? nullptr : Py_NewRef(Py_None);
  ClassMatch match(subject, kind, observer);
  if (!match.prepare()) return nullptr;
  if (positional > 0 && !match.positional(positional)) return no_match();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i)
    if (!match.attribute(PyTuple_GET_ITEM(keywords, i))) return no_match();
  return match.values();
}

PyObject* match_keys(PyObject* mapping, PyObject* keys, Observer* observer) {
  const Py_ssize_t count = PyTuple_GET_SIZE(keys);
  if (count == 0) return PyTuple_New(0);
  if (observer != nullptr && !observed_examine(*observer, mapping, Aspect::kKeys)) return nullptr;
  const py::Ref get = py::Ref::steal(PyObject_GetAttrString(mapping, "get"));
  const py::Ref seen = py::Ref::steal(PySet_New(nullptr));
  const py::Ref missing = py::Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  py::Ref values = py::Ref::steal(PyTuple_New(count));
  if (!get || !seen || !missing || !values) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    const int repeated = PySet_Contains(seen.get(), key);
    if (repeated > 0) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
    if (repeated != 0 || PySet_Add(seen.get(), key) < 0) return nullptr;
    PyObject* arguments[] = {nullptr, key, missing.get()};
    PyObject* value = PyObject_Vectorcall(get.get(), arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (value == missing.get()) {
      Py_DECREF(value);
      return Py_NewRef(Py_None);
    }
    if (value != nullptr && observer != nullptr) value = observer->read_item(mapping, key, value);
    if (value == nullptr) return nullptr;
    PyTuple_SET_ITEM(values.get(), i, value);
  }
  return values.release();
}

}  // namespace thunder::interpreter
