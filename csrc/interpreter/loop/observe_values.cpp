#include "interpreter/python/cpython_compat.h"

#include <algorithm>
#include <array>
#include <optional>

#include "interpreter/loop/observe.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

namespace {

/// The method in C that changes `left` for an operation such as `+=`; null when it makes a new object, or is Python.
PyObject* method_in_place(PyObject* left, binaryfunc operation) {
  struct Row {
    binaryfunc operation;
    PyObject* name;
  };
  static const std::array rows{
      Row{PyNumber_InPlaceAdd, PyUnicode_InternFromString("__iadd__")},
      Row{PyNumber_InPlaceSubtract, PyUnicode_InternFromString("__isub__")},
      Row{PyNumber_InPlaceMultiply, PyUnicode_InternFromString("__imul__")},
      Row{PyNumber_InPlaceTrueDivide, PyUnicode_InternFromString("__itruediv__")},
      Row{PyNumber_InPlaceFloorDivide, PyUnicode_InternFromString("__ifloordiv__")},
      Row{PyNumber_InPlaceRemainder, PyUnicode_InternFromString("__imod__")},
      Row{PyNumber_InPlaceMatrixMultiply, PyUnicode_InternFromString("__imatmul__")},
      Row{PyNumber_InPlaceAnd, PyUnicode_InternFromString("__iand__")},
      Row{PyNumber_InPlaceOr, PyUnicode_InternFromString("__ior__")},
      Row{PyNumber_InPlaceXor, PyUnicode_InternFromString("__ixor__")},
      Row{PyNumber_InPlaceLshift, PyUnicode_InternFromString("__ilshift__")},
      Row{PyNumber_InPlaceRshift, PyUnicode_InternFromString("__irshift__")},
  };
  if (is_scalar(left)) return nullptr;
  for (const Row& row : rows) {
    if (row.operation != operation) continue;
    PyObject* method = _PyType_Lookup(Py_TYPE(left), row.name);
    return method != nullptr && Py_TYPE(method) == &PyWrapperDescr_Type ? method : nullptr;
  }
  return nullptr;
}

/// `operation(left, right)` on what the proxies among two operands, at least one, stand for.
template <typename Operation>
PyObject* on_referents(Observer& observer, PyObject* left, PyObject* right, Operation&& operation) {
  if (!PyWeakref_CheckProxy(left))
    return on_referent(observer, right, [&](PyObject* object) { return operation(left, object); });
  return on_referent(observer, left, [&](PyObject* object) { return operation(object, right); });
}

bool has_method(PyObject* object, const char* name) {
  const py::Ref key = py::Ref::steal(PyUnicode_InternFromString(name));
  return key && has_python_method(Py_TYPE(object), key.get());
}

/// CPython is about to look for these methods, of which a class made by a class statement may get others later. False
/// with an exception set: see `Observer::look_up`.
bool look_up(Observer& observer, PyObject* object, const char* names) {
  return !is_python_class(Py_TYPE(object)) || observer.look_up(object, names);
}

/// The special methods that `operation` looks up in both operands.
const char* methods_of(binaryfunc operation) {
  struct Row {
    binaryfunc operation;
    const char* names;
  };
  static constexpr std::array kRows{
      Row{PyNumber_Add, "__add__ __radd__"},
      Row{PyNumber_Subtract, "__sub__ __rsub__"},
      Row{PyNumber_Multiply, "__mul__ __rmul__ __index__"},
      Row{PyNumber_TrueDivide, "__truediv__ __rtruediv__"},
      Row{PyNumber_FloorDivide, "__floordiv__ __rfloordiv__"},
      Row{PyNumber_Remainder, "__mod__ __rmod__"},
      Row{PyNumber_MatrixMultiply, "__matmul__ __rmatmul__"},
      Row{PyNumber_And, "__and__ __rand__"},
      Row{PyNumber_Or, "__or__ __ror__"},
      Row{PyNumber_Xor, "__xor__ __rxor__"},
      Row{PyNumber_Lshift, "__lshift__ __rlshift__"},
      Row{PyNumber_Rshift, "__rshift__ __rrshift__"},
      Row{PyNumber_InPlaceAdd, "__iadd__ __add__ __radd__"},
      Row{PyNumber_InPlaceSubtract, "__isub__ __sub__ __rsub__"},
      Row{PyNumber_InPlaceMultiply, "__imul__ __mul__ __rmul__ __index__"},
      Row{PyNumber_InPlaceTrueDivide, "__itruediv__ __truediv__ __rtruediv__"},
      Row{PyNumber_InPlaceFloorDivide, "__ifloordiv__ __floordiv__ __rfloordiv__"},
      Row{PyNumber_InPlaceRemainder, "__imod__ __mod__ __rmod__"},
      Row{PyNumber_InPlaceMatrixMultiply, "__imatmul__ __matmul__ __rmatmul__"},
      Row{PyNumber_InPlaceAnd, "__iand__ __and__ __rand__"},
      Row{PyNumber_InPlaceOr, "__ior__ __or__ __ror__"},
      Row{PyNumber_InPlaceXor, "__ixor__ __xor__ __rxor__"},
      Row{PyNumber_InPlaceLshift, "__ilshift__ __lshift__ __rlshift__"},
      Row{PyNumber_InPlaceRshift, "__irshift__ __rshift__ __rrshift__"},
  };
  const auto* row = std::ranges::find(kRows, operation, &Row::operation);
  return row == kRows.end() ? "__ipow__ __pow__ __rpow__" : row->names;
}

/// The special methods that a comparison looks up in both operands, by CPython's number of it.
constexpr std::array kComparisonMethods{"__lt__ __gt__", "__le__ __ge__", "__eq__",
                                        "__ne__ __eq__", "__gt__ __lt__", "__ge__ __le__"};

/// The special methods by which an object is an index, or a tuple of such for a tensor.
constexpr const char* kIndexMethods = "__index__ __len__ __getitem__ __torch_function__";

bool is_builtin_container(PyObject* object) {
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || PyAnySet_Check(object);
}

/// Objects that have an identity, but no contents that an operation could look at.
bool has_no_contents(PyObject* object) {
  return is_scalar(object) || PyType_Check(object) || PyModule_Check(object) || PyFunction_Check(object) ||
         PyCFunction_Check(object) || PyMethod_Check(object) || PyGen_CheckExact(object);
}

/// Whether operations on `object` run Python code, which is observed itself.
bool is_seen_inside(PyObject* object) { return is_python_class(Py_TYPE(object)) && !is_builtin_container(object); }

bool examine_contents(Observer& observer, PyObject* object) {
  return has_no_contents(object) || is_seen_inside(object) || observer.examine(object, Aspect::kContents);
}

/// Whether a list or tuple has `value` is decided by identity first.
bool examine_identities(Observer& observer, PyObject* container, PyObject* value) {
  if (is_scalar(value) || !(PyList_CheckExact(container) || PyTuple_CheckExact(container))) return true;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(container); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(container, i);
    if (!look_up(observer, item, kComparisonMethods[Py_EQ])) return false;
    // Two numbers that the trace computes are compared, whichever objects they are.
    const bool are_numbers = observer.is_number(item) && observer.is_number(value);
    if (item != value && !is_scalar(item) && !are_numbers && !observer.examine_identity(item, value)) return false;
  }
  return true;
}

/// The dict behind `dict.keys()` and friends, or a read-only proxy; null when there is none.
PyObject* dict_behind(PyObject* object) {
  PyObject* mapping = mapping_behind(object);
  return mapping != nullptr && PyDict_Check(mapping) ? mapping : nullptr;
}

/// The operand that a comparison with `other` gets for `value`. It looks at all that is inside of `value`, unless a
/// container is compared with a number.
py::Ref compared(Observer& observer, PyObject* value, PyObject* other) {
  if (is_builtin_container(value) && is_scalar(other)) return py::Ref::share(value);
  py::Ref given = py::Ref::steal(observed_given(observer, value));
  // A method in Python gets the object itself, and may leave the comparison to the one in C.
  return given && has_method(value, "__eq__") ? py::Ref::share(value) : given;
}

}  // namespace

bool observed_examine(Observer& observer, PyObject* object, Aspect aspect) {
  if (PyWeakref_CheckProxy(object)) {
    return on_referent(observer, object, [&](PyObject* behind) { return observed_examine(observer, behind, aspect); });
  }
  switch (aspect) {
    case Aspect::kType:
      return is_scalar(object) || observer.examine(object, aspect);
    case Aspect::kLength:
      if (!look_up(observer, object, "__len__")) return false;
      return is_scalar(object) || has_method(object, "__len__") || observer.examine(object, aspect);
    case Aspect::kTruth:
      if (!look_up(observer, object, "__bool__ __len__")) return false;
      return has_no_contents(object) || has_method(object, "__bool__") || has_method(object, "__len__") ||
             observer.examine(object, aspect);
    case Aspect::kKeys:
      return has_no_contents(object) || observer.examine(object, aspect);
    case Aspect::kContents:
      return examine_contents(observer, object);
  }
  return true;
}

bool observed_write(Observer& observer, PyObject* owner, WriteKind kind, PyObject* key) {
  if (kind == WriteKind::kItem && has_method(owner, "__setitem__")) return true;
  if (kind == WriteKind::kDeleteItem && has_method(owner, "__delitem__")) return true;
  return observer.before_write(owner, kind, key);
}

PyObject* observed_receive(Observer& observer, PyObject* value) {
  return value == nullptr || is_scalar(value) ? value : observer.receive(value);
}

PyObject* observed_given(Observer& observer, PyObject* value) {
  // Code in C tells which function it is.
  return has_no_contents(value) && !PyFunction_Check(value) ? Py_NewRef(value) : observer.given(value);
}

void observed_key(Observer& observer, PyObject* key, PyObject* container) {
  if (is_scalar(key)) return;
  observer.examine_key(key);
  observer.examine_shared(key, container);
}

bool observed_look_up(Observer& observer, PyObject* object, const char* names) {
  return look_up(observer, object, names);
}

PyObject* observed_get_item(Observer& observer, PyObject* owner, PyObject* key) {
  if (PyWeakref_CheckProxy(owner)) {
    return on_referent(observer, owner, [&](PyObject* object) { return observed_get_item(observer, object, key); });
  }
  if (!look_up(observer, owner, "__getitem__")) return nullptr;
  if (!PyDict_Check(owner) && !look_up(observer, key, kIndexMethods)) return nullptr;
  static PyObject* const of_class = PyUnicode_InternFromString("__class_getitem__");
  if (PyType_Check(owner)) observer.read_missing_attribute(owner, of_class);
  if (has_no_contents(owner) || has_method(owner, "__getitem__")) return PyObject_GetItem(owner, key);
  const py::Ref index = py::Ref::steal(observer.operand(key, owner, true));
  if (!index) return nullptr;
  if (PyDict_Check(owner) && !PyDict_CheckExact(owner)) {
    static PyObject* missing = PyUnicode_InternFromString("__missing__");
    PyObject* method = _PyType_Lookup(Py_TYPE(owner), missing);
    const int found = method != nullptr ? PyDict_Contains(owner, index.get()) : 1;
    if (found < 0 || (found == 0 && !observer.examine_presence(owner, index.get()))) return nullptr;
    if (found == 0) {
      if (!look_up(observer, owner, "__missing__")) return nullptr;
      // One in C (defaultdict) stores what it makes.
      if (!PyFunction_Check(method) && !observer.before_write(owner, WriteKind::kItem, index.get())) return nullptr;
      PyObject* made = PyObject_GetItem(owner, index.get());
      if (!PyFunction_Check(method)) observer.after_write();
      return observed_receive(observer, made);
    }
  }
  PyObject* value = observer.get_item(owner, index.get());
  if (value != nullptr) return observer.read_item(owner, index.get(), value);
  if (!PyErr_ExceptionMatches(PyExc_LookupError)) return nullptr;
  py::Ref error = py::Ref::steal(take_exception());
  if (PyDict_Check(owner)) look_up(observer, owner, "__missing__");
  PyObject* dict = PyDict_Check(owner) ? owner : dict_behind(owner);
  if (dict != nullptr ? observer.examine_presence(dict, index.get()) : observer.examine(owner, Aspect::kLength))
    restore_exception(error.release());
  return nullptr;
}

int observed_set_item(Observer& observer, PyObject* owner, PyObject* key, PyObject* value) {
  if (PyWeakref_CheckProxy(owner)) {
    return on_referent(observer, owner,
                       [&](PyObject* object) { return observed_set_item(observer, object, key, value); });
  }
  if (!look_up(observer, owner, "__setitem__ __delitem__")) return -1;
  if (!PyDict_Check(owner) && !look_up(observer, key, kIndexMethods)) return -1;
  const bool by_python = has_method(owner, value != nullptr ? "__setitem__" : "__delitem__");
  const py::Ref index = py::Ref::steal(by_python ? Py_NewRef(key) : observer.operand(key, owner, true));
  if (!index) return -1;
  const WriteKind kind = value != nullptr ? WriteKind::kItem : WriteKind::kDeleteItem;
  if (!by_python && PyDict_Check(owner)) observed_key(observer, index.get(), owner);
  if (!by_python && !observer.before_write(owner, kind, index.get())) return -1;
  if (value != nullptr && PySlice_Check(key) && is_builtin_container(owner) && !observed_get_iterator(observer, value))
    return -1;
  const py::Ref stored = py::Ref::steal(value != nullptr ? observer.operand(value, owner, false) : nullptr);
  if (value != nullptr && !stored) return -1;
  const int status =
      value != nullptr ? observer.set_item(owner, index.get(), stored.get()) : PyObject_DelItem(owner, index.get());
  if (!by_python) observer.after_write();
  return status;
}

int observed_is_true(Observer& observer, PyObject* object) {
  return observed_examine(observer, object, Aspect::kTruth) ? PyObject_IsTrue(object) : -1;
}

namespace {

/// Whether a number that changes is among the keys of a dict or set, if these are a few ints, with which it is compared
/// one by one; nullopt: it is looked up. -1 with an exception.
std::optional<int> compare_with_keys(Observer& observer, PyObject* keyed, PyObject* number) {
  constexpr Py_ssize_t kMost = 32;
  const bool is_dict = PyDict_Check(keyed);
  if (!observer.stands_for_number(number) || !(is_dict || PyAnySet_Check(keyed))) return std::nullopt;
  if ((is_dict ? PyDict_GET_SIZE(keyed) : PySet_GET_SIZE(keyed)) > kMost) return std::nullopt;
  const py::Ref keys = py::Ref::steal(PySequence_List(keyed));
  if (!keys) return -1;
  PyObject* const* items = PySequence_Fast_ITEMS(keys.get());
  const auto is_int = [](PyObject* key) { return PyLong_CheckExact(key); };
  if (!std::all_of(items, items + PyList_GET_SIZE(keys.get()), is_int)) return std::nullopt;
  if (!observer.examine(keyed, Aspect::kKeys)) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    const py::Ref outcome = py::Ref::steal(PyObject_RichCompare(number, items[i], Py_EQ));
    const int is_equal = outcome ? PyObject_IsTrue(outcome.get()) : -1;
    if (is_equal != 0) return is_equal;
  }
  return 0;
}

}  // namespace

int observed_contains(Observer& observer, PyObject* container, PyObject* value) {
  if (PyWeakref_CheckProxy(container)) {
    return on_referent(observer, container,
                       [&](PyObject* object) { return observed_contains(observer, object, value); });
  }
  bool allowed = true;
  if (!look_up(observer, container, "__contains__ __iter__")) return -1;
  PyObject* dict = dict_behind(container);
  const bool by_python = has_method(container, "__contains__") || has_method(container, "__iter__");
  const bool is_keyed = dict != nullptr ? PyDictKeys_Check(container) || Py_TYPE(container) == &PyDictProxy_Type
                                        : !by_python && (PyDict_Check(container) || PyAnySet_Check(container));
  PyObject* keyed = dict != nullptr ? dict : container;
  if (PyIter_Check(container) && !observed_advance(observer, container)) return -1;
  if (const auto found = is_keyed ? compare_with_keys(observer, keyed, value) : std::nullopt) return *found;
  const py::Ref key = py::Ref::steal(is_keyed    ? observer.operand(value, keyed, true)
                                     : by_python ? Py_NewRef(value)
                                                 : observed_given(observer, value));
  const py::Ref searched =
      py::Ref::steal(is_keyed || by_python ? Py_NewRef(container) : observed_given(observer, container));
  if (!key || !searched) return -1;
  if (is_keyed) {
    allowed = observer.examine_presence(keyed, key.get());
  } else if (!by_python) {
    if (!examine_identities(observer, searched.get(), value)) return -1;
    observer.examine_shared(value, searched.get());
    if (is_builtin_container(value) || self_of_method(value)) {
      observer.examine_key(value);
      observer.examine_key(searched.get());
    }
  }
  return allowed ? PySequence_Contains(searched.get(), key.get()) : -1;
}

PyObject* observed_binary(Observer& observer, PyObject* left, PyObject* right, binaryfunc operation) {
  if (PyWeakref_CheckProxy(left) || PyWeakref_CheckProxy(right)) {
    return on_referents(observer, left, right,
                        [&](PyObject* a, PyObject* b) { return observed_binary(observer, a, b, operation); });
  }
  if (PyObject* method = method_in_place(left, operation)) {
    const bool is_known = is_builtin_container(left) || is_deque(left);
    PyObject* const arguments[] = {left, right};
    PyObject* result = nullptr;
    if (!is_known && !observer.before_write(left, WriteKind::kContents, nullptr)) return nullptr;
    const int status = is_known ? observer.before_native_call(method, arguments, 2, nullptr, &result) : 0;
    if (status != 0) return status > 0 ? result : nullptr;
    const py::Ref given = py::Ref::steal(is_known ? Py_NewRef(right) : observed_given(observer, right));
    if (!given) return nullptr;
    PyObject* changed = operation(left, given.get());
    observer.after_write();
    return observed_receive(observer, changed);
  }
  if (!look_up(observer, left, methods_of(operation)) || !look_up(observer, right, methods_of(operation)))
    return nullptr;
  if (!examine_contents(observer, left) || !examine_contents(observer, right)) return nullptr;
  const py::Ref first = py::Ref::steal(observer.operand(left, right, false));
  const py::Ref second = py::Ref::steal(first ? observer.operand(right, left, false) : nullptr);
  if (!second) return nullptr;
  const bool is_true_division = operation == &PyNumber_TrueDivide || operation == &PyNumber_InPlaceTrueDivide;
  if (is_true_division && first.get() != left && !is_scalar(first.get()) && observer.is_number(left)) {
    // A tensor stands for the number, which leaves the division to the other tensor: that multiplies its reciprocal,
    // which rounds otherwise than a quotient.
    py::Ref result = py::Ref::steal(PyObject_CallMethod(second.get(), "__rtruediv__", "O", first.get()));
    if (result.get() != Py_NotImplemented) return observed_receive(observer, result.release());
  }
  return observed_receive(observer, operation(first.get(), second.get()));
}

PyObject* observed_compare(Observer& observer, PyObject* left, PyObject* right, int operation) {
  if (PyWeakref_CheckProxy(left) || PyWeakref_CheckProxy(right)) {
    return on_referents(observer, left, right,
                        [&](PyObject* a, PyObject* b) { return observed_compare(observer, a, b, operation); });
  }
  for (PyObject* operand : {left, right}) {
    if (!look_up(observer, operand, kComparisonMethods[operation])) return nullptr;
  }
  if (!is_scalar(left) && !is_scalar(right)) {
    for (PyObject* operand : {left, right}) {
      if (is_builtin_container(operand) || self_of_method(operand)) observer.examine_key(operand);
    }
    if (is_builtin_container(left) && is_builtin_container(right)) observer.examine_shared(left, right);
  }
  const bool is_by_identity = Py_TYPE(left)->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
                              Py_TYPE(right)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  if (is_by_identity && !observer.examine_identity(left, right)) return nullptr;
  const py::Ref seen_left = compared(observer, left, right);
  const py::Ref seen_right = seen_left ? compared(observer, right, left) : nullptr;
  // Tuples compare their items, which are operands themselves.
  if (seen_right && PyTuple_Check(seen_left.get()) && PyTuple_Check(seen_right.get())) {
    return observed_receive(observer, PyObject_RichCompare(seen_left.get(), seen_right.get(), operation));
  }
  const py::Ref first =
      py::Ref::steal(seen_right ? observer.operand(seen_left.get(), seen_right.get(), false) : nullptr);
  const py::Ref second = py::Ref::steal(first ? observer.operand(seen_right.get(), seen_left.get(), false) : nullptr);
  return second ? observed_receive(observer, PyObject_RichCompare(first.get(), second.get(), operation)) : nullptr;
}

bool observed_advance(Observer& observer, PyObject* iterator) {
  return has_method(iterator, "__next__") || observer.before_write(iterator, WriteKind::kContents, nullptr);
}

PyObject* observed_next_value(Observer& observer, PyObject* iterator, PyObject* value) {
  if (PyGen_CheckExact(iterator) || is_scalar(value) || has_method(iterator, "__next__")) return value;
  return observer.receive(value);
}

bool observed_get_iterator(Observer& observer, PyObject* iterable) {
  if (PyWeakref_CheckProxy(iterable)) {
    return on_referent(observer, iterable, [&](PyObject* object) { return observed_get_iterator(observer, object); });
  }
  if (!look_up(observer, iterable, "__iter__ __getitem__")) return false;
  if (PyIter_Check(iterable)) return observed_advance(observer, iterable);
  if (has_method(iterable, "__iter__")) return true;
  if (PyObject* dict = dict_behind(iterable)) {
    const bool needs_keys = PyDictKeys_Check(iterable) || Py_TYPE(iterable) == &PyDictProxy_Type;
    return observer.examine(dict, needs_keys ? Aspect::kKeys : Aspect::kContents);
  }
  if (PyDict_Check(iterable)) return observer.examine(iterable, Aspect::kKeys);
  return examine_contents(observer, iterable);
}

namespace {

bool spread_exact(Observer& observer, PyObject** container) {
  PyObject* taken = observer.spread(*container);
  if (taken != nullptr) Py_SETREF(*container, taken);
  return taken != nullptr;
}

}  // namespace

bool observed_spread(Observer& observer, PyObject** iterable) {
  const bool is_sequence = PyTuple_CheckExact(*iterable) || PyList_CheckExact(*iterable);
  return is_sequence ? spread_exact(observer, iterable) : observed_get_iterator(observer, *iterable);
}

bool observed_spread_mapping(Observer& observer, PyObject** mapping) {
  return PyDict_CheckExact(*mapping) ? spread_exact(observer, mapping)
                                     : observed_examine(observer, *mapping, Aspect::kContents);
}

}  // namespace thunder::interpreter
