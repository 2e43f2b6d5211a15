#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/opaque_state.h"

#include <array>
#include <cstring>
#include <string_view>

#include "interpreter/provenance/provenance.h"
#include "interpreter/python/memoized.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

constexpr unsigned long kScalarSubclass =
    Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS;

bool is_scalar_subclass(py::Borrowed object) {
  return (Py_TYPE(object)->tp_flags & kScalarSubclass) != 0 || PyFloat_Check(object) || PyComplex_Check(object);
}

bool is_exact_scalar(py::Borrowed object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
         type == &PyBytes_Type || type == &PyComplex_Type || object == Py_None;
}

/// Types in C whose instances do not change, and whose `repr` says everything about one.
bool is_told_by_repr(PyTypeObject* type) {
  const PyTypeObject* native = native_base(type);
  const std::string_view name = native->tp_name;
  return native == &PyRange_Type || name.starts_with("datetime.") || name == "decimal.Decimal";
}

bool has_parts_of_its_own(py::Borrowed object) {
  static const std::array<PyTypeObject*, 14> types{
      &PyFunction_Type,   &PyMethod_Type,       &PyCode_Type,        &PyCell_Type,       &PyProperty_Type,
      &PyModule_Type,     &PyDictKeys_Type,     &PyDictValues_Type,  &PyDictItems_Type,  &PyDictProxy_Type,
      &PyContextVar_Type, &PyStaticMethod_Type, &PyClassMethod_Type, &PyMemberDescr_Type};
  PyTypeObject* type = Py_TYPE(object);
  for (const PyTypeObject* candidate : types) {
    if (type == candidate) return true;
  }
  return PyType_Check(object) || PyCFunction_Check(object) || PyIter_Check(object) || PyCoro_CheckExact(object) ||
         PyWeakref_Check(object) || PyExceptionInstance_Check(object) || PyModule_Check(object) ||
         std::string_view(type->tp_name).starts_with("functools.");
}

template <typename Value>
bool same_bits(Value left, Value right) {
  return std::memcmp(&left, &right, sizeof left) == 0;
}

bool is_true(PyObject* result) {
  const py::Ref owned = py::Ref::steal(result);
  if (!owned) PyErr_Clear();
  return owned.get() == Py_True;
}

/// For ints, texts, bytes, and tuples of such.
bool are_equal(py::Borrowed left, py::Borrowed right) { return PyObject_RichCompareBool(left, right, Py_EQ) == 1; }

bool same_slice(py::Borrowed left, py::Borrowed right) {
  const auto* first = reinterpret_cast<PySliceObject*>(left);
  const auto* second = reinterpret_cast<PySliceObject*>(right);
  const auto same = [](PyObject* a, PyObject* b) {
    return a == b || (PyLong_CheckExact(a) && PyLong_CheckExact(b) && are_equal(a, b));
  };
  return same(first->start, second->start) && same(first->stop, second->stop) && same(first->step, second->step);
}

/// The value of a getter in C under a name, None for an object that has none there.
py::Ref told_by(py::Borrowed object, PyObject* name) {
  PyObject* classes = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes, i));
    PyObject* found = PyDict_GetItemWithError(dict_of_type(type), name);
    if (found == nullptr || Py_TYPE(found) != &PyGetSetDescr_Type) continue;
    return py::Ref::steal(PyGetSetDescr_Type.tp_descr_get(found, object, nullptr));
  }
  return py::Ref::share(Py_None);
}

/// The zone of a date or time, if it is an object of a class in Python, which has a `repr` of its own; null without an
/// exception for all else.
py::Ref python_zone_of(py::Borrowed object) {
  static PyObject* const name = PyUnicode_InternFromString("tzinfo");
  py::Ref zone = told_by(object, name);
  if (!zone) PyErr_Clear();
  return zone && is_python_class(Py_TYPE(zone.get())) ? std::move(zone) : py::Ref();
}

/// The text by which the type in C shows a date, a time or a number, but for a zone in Python; null with an exception.
py::Ref text_of_value(py::Borrowed object, const py::Ref& zone) {
  if (!zone) return py::Ref::steal(native_base(Py_TYPE(object))->tp_repr(object));
  const py::Ref replace = py::Ref::steal(PyObject_GetAttrString(object, "replace"));
  const py::Ref none = py::Ref::steal(PyTuple_New(0)),
                keywords = py::Ref::steal(Py_BuildValue("{sO}", "tzinfo", Py_None));
  const bool is_ready = replace && none && keywords;
  const py::Ref plain = py::Ref::steal(is_ready ? PyObject_Call(replace.get(), none.get(), keywords.get()) : nullptr);
  return py::Ref::steal(plain ? PyObject_Repr(plain.get()) : nullptr);
}

bool same_text(py::Borrowed left, py::Borrowed right) {
  const py::Ref zone = python_zone_of(left);
  if (python_zone_of(right).get() != zone.get()) return false;
  if (zone && is_python_class(Py_TYPE(left))) return false;  // its `replace` may be in Python
  const py::Ref first = text_of_value(left, zone), second = text_of_value(right, zone);
  if (first && second) return PyUnicode_Compare(first.get(), second.get()) == 0;
  PyErr_Clear();
  return false;
}

// The operations of the built-in types themselves: a subclass may have others, in Python.
bool same_value(py::Borrowed left, py::Borrowed right) {
  if (left == right) return true;
  if (Py_TYPE(left) != Py_TYPE(right)) return false;
  if (PyLong_Check(left)) return is_true(PyLong_Type.tp_richcompare(left, right, Py_EQ));
  if (PyUnicode_Check(left)) return is_true(PyUnicode_Type.tp_richcompare(left, right, Py_EQ));
  if (PyBytes_Check(left)) return is_true(PyBytes_Type.tp_richcompare(left, right, Py_EQ));
  if (PyFloat_Check(left)) return same_bits(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
  if (PyComplex_Check(left)) {
    return same_bits(reinterpret_cast<PyComplexObject*>(left)->cval, reinterpret_cast<PyComplexObject*>(right)->cval);
  }
  return PySlice_Check(left) ? same_slice(left, right) : same_text(left, right);
}

/// An array of NumPy whose elements are the bytes of those of `object`, in the same memory; null, without an exception,
/// for all else, and where bytes do not tell elements: objects, texts of any length.
py::Ref bytes_of_array(py::Borrowed object) {
  PyTypeObject* type = Py_TYPE(object);
  while (type != nullptr && std::string_view(type->tp_name) != "numpy.ndarray") type = type->tp_base;
  if (type == nullptr) return nullptr;
  auto* const of_array = reinterpret_cast<PyObject*>(type);
  const py::Ref size = py::Ref::steal(PyObject_GetAttrString(object, "itemsize"));
  const py::Ref dtype = py::Ref::steal(size ? PyUnicode_FromFormat("V%S", size.get()) : nullptr);
  py::Ref bytes = py::Ref::steal(
      dtype ? PyObject_CallMethod(of_array, "view", "OOO", static_cast<PyObject*>(object), dtype.get(), of_array)
            : nullptr);
  if (!bytes) PyErr_Clear();
  return bytes;
}

/// The memory behind an object, for as long as this lives.
class Memory {
 public:
  explicit Memory(py::Borrowed object, int flags = PyBUF_FULL_RO)
      : is_open_(PyObject_GetBuffer(object, &view_, flags) == 0) {
    if (is_open_) return;
    PyErr_Clear();
    // Arrays of dates, and of structures with dates, have no buffer.
    const py::Ref bytes = bytes_of_array(object);
    is_open_ = bytes && PyObject_GetBuffer(bytes.get(), &view_, flags) == 0;
    PyErr_Clear();
  }
  ~Memory() {
    if (is_open_) PyBuffer_Release(&view_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] Py_buffer& view() { return view_; }
  /// An array of NumPy with `dtype=object`, or a pointer of ctypes: nothing follows from its bytes, which are
  /// addresses.
  [[nodiscard]] bool holds_addresses() const {
    return view_.format != nullptr && std::string_view(view_.format).find_first_of("O&") != std::string_view::npos;
  }
  [[nodiscard]] py::Ref copy() {
    py::Ref bytes = py::Ref::steal(PyBytes_FromStringAndSize(nullptr, view_.len));
    if (bytes && PyBuffer_ToContiguous(PyBytes_AS_STRING(bytes.get()), &view_, view_.len, 'C') < 0) return nullptr;
    return bytes;
  }
  [[nodiscard]] py::Ref layout_of(py::Borrowed object) const {
    // The strides of the buffer may be others: NumPy's has those of a contiguous array wherever elements lie in order,
    // whatever the strides of dimensions of size one. Its format does not tell the unit of dates.
    static PyObject* const strides_name = PyUnicode_InternFromString("strides");
    static PyObject* const dtype_name = PyUnicode_InternFromString("dtype");
    const py::Ref strides = told_by(object, strides_name), dtype = told_by(object, dtype_name);
    py::Ref shape = py::Ref::steal(PyTuple_New(view_.shape == nullptr ? 0 : view_.ndim));
    for (int i = 0; shape && view_.shape != nullptr && i < view_.ndim; ++i) {
      PyTuple_SET_ITEM(shape.get(), i, PyLong_FromSsize_t(view_.shape[i]));
    }
    const bool is_ready = shape && strides && dtype;
    return py::Ref::steal(
        is_ready ? Py_BuildValue("(zOOOi)", view_.format, shape.get(), strides.get(), dtype.get(), view_.readonly)
                 : nullptr);
  }

 private:
  Py_buffer view_{};
  bool is_open_;
};

bool has_memory(py::Borrowed object, py::Borrowed state) {
  Memory memory(object);
  if (!memory.is_open()) return false;
  const py::Ref layout = memory.layout_of(object);
  PyObject* bytes = PyTuple_GET_ITEM(state, 1);
  bool same =
      layout && are_equal(layout.get(), PyTuple_GET_ITEM(state, 0)) && memory.view().len == PyBytes_GET_SIZE(bytes);
  if (same && PyBuffer_IsContiguous(&memory.view(), 'C') != 0) {
    same = std::memcmp(memory.view().buf, PyBytes_AS_STRING(bytes), static_cast<std::size_t>(memory.view().len)) == 0;
  } else if (same) {
    const py::Ref copy = memory.copy();
    same = copy && are_equal(copy.get(), bytes);
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return same;
}

/// The classes that derive from a class; null with an exception.
py::Ref subclasses_of(py::Borrowed type) {
  return py::Ref::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__", "O",
                                            static_cast<PyObject*>(type)));
}

py::Ref references_to_subclasses(py::Borrowed type) {
  py::Ref classes = subclasses_of(type);
  for (Py_ssize_t i = 0; classes && i < PyList_GET_SIZE(classes.get()); ++i) {
    PyObject* reference = PyWeakref_NewRef(PyList_GET_ITEM(classes.get(), i), nullptr);
    if (reference == nullptr || PyList_SetItem(classes.get(), i, reference) < 0) return nullptr;
  }
  return classes;
}

bool has_subclasses(py::Borrowed type, py::Borrowed references) {
  const py::Ref classes = subclasses_of(type);
  if (!classes) return PyErr_Clear(), false;
  const Py_ssize_t count = PyList_GET_SIZE(classes.get());
  if (count != PyList_GET_SIZE(references)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyWeakref_GET_OBJECT(PyList_GET_ITEM(references, i)) != PyList_GET_ITEM(classes.get(), i)) return false;
  }
  return true;
}

/// Calls `visit` for names of the class that attributes of the object hide, until it gives false. False: it did, or an
/// exception is set. Makes nothing where the attributes lie in a dict or there are none: guards ask at each call.
template <typename Visit>
bool visit_hidden_names(py::Borrowed object, const Visit& visit) {
  if (dict_that_is_made(object) == nullptr && count_of_inline_attributes(object) == 0) return true;
  const py::Ref dict = py::Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) return false;
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t place = 0; PyDict_Next(dict.get(), &place, &name, &value) != 0;) {
    const bool hides = PyUnicode_CheckExact(name) && _PyType_Lookup(Py_TYPE(object), name) != nullptr;
    if (hides && !visit(name)) return false;
  }
  return true;
}

/// These names as a tuple; null with an exception.
py::Ref hidden_names(py::Borrowed object) {
  const py::Ref names = py::Ref::steal(PyList_New(0));
  const auto add = [&](PyObject* name) { return PyList_Append(names.get(), name) == 0; };
  return py::Ref::steal(names && visit_hidden_names(object, add) ? PyList_AsTuple(names.get()) : nullptr);
}

bool has_hidden_names(py::Borrowed object, py::Borrowed names) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  Py_ssize_t found = 0;
  const auto is_next = [&](PyObject* name) {
    return found < count && are_equal(name, PyTuple_GET_ITEM(names, found++));
  };
  if (visit_hidden_names(object, is_next)) return found == count;
  PyErr_Clear();
  return false;
}

/// Whether the state that is kept of an object is the object itself, or a weak reference to it.
bool is_object(py::Borrowed object, py::Borrowed state) {
  return object == state || (PyWeakref_CheckRefExact(state) && PyWeakref_GET_OBJECT(state) == object);
}

}  // namespace

PyTypeObject* native_base(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type;
}

bool is_flat_iterator(py::Borrowed object) { return std::string_view(Py_TYPE(object)->tp_name) == "numpy.flatiter"; }

bool is_plain_value(py::Borrowed object) {
  if (is_exact_scalar(object)) return false;
  return is_scalar_subclass(object) || PySlice_Check(object) || is_told_by_repr(Py_TYPE(object));
}

StateKind state_kind(py::Borrowed object) {
  if (is_exact_scalar(object) || has_parts_of_its_own(object)) return StateKind::kNone;
  if (is_plain_value(object)) return StateKind::kValue;
  if (PyObject_CheckBuffer(object) != 0 && Memory(object).is_open()) return StateKind::kBuffer;
  return is_python_class(Py_TYPE(object)) || _PyObject_GetDictPtr(object) != nullptr ? StateKind::kNone
                                                                                     : StateKind::kIdentity;
}

py::Ref state_of(py::Borrowed object, StateKind kind) {
  if (kind == StateKind::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) {
    return py::Ref::steal(PyWeakref_NewRef(object, nullptr));
  }
  if (kind == StateKind::kSubclasses) return references_to_subclasses(object);
  if (kind == StateKind::kHidden) return hidden_names(object);
  if (kind != StateKind::kBuffer) return py::Ref::share(object);
  Memory memory(object);
  if (memory.is_open() && memory.holds_addresses()) {
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: an object of type '%.200s' from outside of the function, whose memory holds addresses, is "
        "used in it",
        Py_TYPE(object)->tp_name);
    return nullptr;
  }
  const py::Ref layout = memory.is_open() ? memory.layout_of(object) : nullptr;
  const py::Ref bytes = layout ? memory.copy() : nullptr;
  return py::Ref::steal(bytes ? PyTuple_Pack(2, layout.get(), bytes.get()) : nullptr);
}

bool has_state(py::Borrowed object, StateKind kind, py::Borrowed state) {
  if (kind == StateKind::kBuffer) return has_memory(object, state);
  if (kind == StateKind::kSubclasses) return has_subclasses(object, state);
  if (kind == StateKind::kHidden) return has_hidden_names(object, state);
  if (kind == StateKind::kMemo) return is_memoized(object) && has_memo_entry(object, state);
  return is_object(object, state) || (kind == StateKind::kValue && same_value(object, state));
}

std::string describe_state(py::Borrowed object, StateKind kind, py::Borrowed state) {
  if (is_object(object, state)) {
    reprfunc own = PyLong_Check(object)      ? PyLong_Type.tp_repr
                   : PyUnicode_Check(object) ? PyUnicode_Type.tp_repr
                   : PyFloat_Check(object)   ? PyFloat_Type.tp_repr
                                             : nullptr;
    const py::Ref text = py::Ref::steal(own == nullptr ? nullptr : own(object));
    const char* content = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    PyErr_Clear();
    return content == nullptr ? describe(object) : std::string(Py_TYPE(object)->tp_name) + "(" + content + ")";
  }
  if (kind == StateKind::kSubclasses) return std::to_string(PyList_GET_SIZE(state)) + " subclasses";
  if (kind == StateKind::kHidden) return "attributes that hide " + describe(state);
  const py::Ref bytes = py::Ref::share(PyTuple_GET_ITEM(state, 1));
  if (is_memoized(object))
    return describe(object) + ", which keeps a result for " + describe(PyTuple_GET_ITEM(state, 0));
  return std::string(Py_TYPE(object)->tp_name) + " of the bytes " + describe(bytes.get());
}

int restore_buffer(py::Borrowed object, py::Borrowed state) {
  PyObject* bytes = PyTuple_GET_ITEM(state, 1);
  if (PyByteArray_Check(object)) return PySequence_SetSlice(object, 0, PY_SSIZE_T_MAX, bytes);
  if (PySequence_Check(object) != 0 && PyObject_HasAttrString(object, "frombytes") != 0) {  // array.array
    if (PySequence_DelSlice(object, 0, PY_SSIZE_T_MAX) < 0) return -1;
    return py::Ref::steal(PyObject_CallMethod(object, "frombytes", "O", bytes)) ? 0 : -1;
  }
  Memory memory(object, PyBUF_FULL);
  if (!memory.is_open()) return -1;
  return PyBuffer_FromContiguous(&memory.view(), PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes), 'C');
}

}  // namespace thunder::interpreter
