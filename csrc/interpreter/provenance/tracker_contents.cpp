#include "interpreter/python/cpython_compat.h"

#include <string_view>
#include <vector>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/observe.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// Nested containers of more levels are not followed; a container that holds itself has no end.
constexpr int kDeepest = 32;

bool is_container(py::Borrowed value) {
  constexpr unsigned long kFlags = Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS;
  return (Py_TYPE(value)->tp_flags & kFlags) != 0 || PyAnySet_Check(value) || is_deque(value);
}

/// The mapping that a view or read-only proxy looks into; every other object itself.
py::Borrowed behind_view(py::Borrowed object) {
  PyObject* mapping = mapping_behind(object);
  return mapping == nullptr ? object : py::Borrowed(mapping);
}

/// Iterators in C that take their values from other objects: `iter(items)`, `zip(a, b)`, `itertools.chain(a, b)`.
bool iterates_over_objects(py::Borrowed object) {
  PyTypeObject* type = Py_TYPE(object);
  const std::string_view name = type->tp_name;
  if (name.starts_with("itertools.")) return true;
  return PyIter_Check(object) && !PyGen_CheckExact(object) && !is_python_class(type) && !name.starts_with("_io.");
}

/// The objects that an object in C refers to, as the garbage collector sees them.
std::vector<py::Ref> referents(py::Borrowed object) {
  std::vector<py::Ref> found;
  const auto visit = [](PyObject* part, void* parts) {
    static_cast<std::vector<py::Ref>*>(parts)->push_back(py::Ref::share(part));
    return 0;
  };
  if (PyObject_IS_GC(object) && Py_TYPE(object)->tp_traverse != nullptr) {
    Py_TYPE(object)->tp_traverse(object, visit, &found);
  }
  return found;
}

/// A view or read-only proxy like `view`, of another dict.
py::Ref view_like(py::Borrowed view, const py::Ref& dict) {
  if (!dict) return nullptr;
  if (Py_TYPE(view) == &PyDictProxy_Type) return py::Ref::steal(PyDictProxy_New(dict.get()));
  const char* method = PyObject_TypeCheck(view, &PyDictValues_Type)  ? "values"
                       : PyObject_TypeCheck(view, &PyDictItems_Type) ? "items"
                                                                     : "keys";
  return py::Ref::steal(PyObject_CallMethod(dict.get(), method, nullptr));
}

/// Calls `visit(item)` for the items of a list or tuple, the values of a dict and the ends of a slice.
template <typename Visit>
void for_each_item(py::Borrowed container, Visit&& visit) {
  if (PyDict_Check(container)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(container, &position, &key, &value)) visit(value);
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    PyObject** items = PySequence_Fast_ITEMS(container);
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(items[i]);
  } else if (is_deque(container)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(container); ++i) visit(deque_item(container, i));
  } else if (PySlice_Check(container)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(container);
    for (PyObject* end : {slice->start, slice->stop, slice->step}) visit(end);
  }
}

}  // namespace

bool Tracker::read_arguments(const NativeCall& call, PyObject* const* arguments, std::size_t count) {
  const std::size_t total =
      count + (call.names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(call.names)));
  bool has_real_tensors = false;
  for (std::size_t i = 0; i < total; ++i) {
    has_real_tensors |= read_deeply(arguments[i], 0);
    if (PyErr_Occurred() != nullptr || (PyIter_Check(arguments[i]) && !consume(arguments[i]))) return false;
  }
  // `send`, `__next__` and the like of what somebody else goes on with.
  const bool advances = call.self != nullptr && (PyGen_CheckExact(call.self) || PyCoro_CheckExact(call.self) ||
                                                 iterates_over_objects(call.self));
  if (advances && !write_contents(call.self)) return false;
  if (call.self != nullptr && call.arguments == arguments) read_deeply(call.self, 0);
  if (call.self != nullptr && PyType_Check(call.self)) record_methods(reinterpret_cast<PyTypeObject*>(call.self));
  return has_real_tensors;
}

NativeEffect Tracker::effect_on_self(const NativeCall& call) {
  const NativeEffect effect = effect_of(call);
  const bool is_item =
      effect == NativeEffect::kGetItem || effect == NativeEffect::kSetItem || effect == NativeEffect::kDeleteItem;
  // `operator.getitem` of a tensor or array looks into the index.
  return is_item && call.self != nullptr && !is_container(call.self) ? NativeEffect::kOpaque : effect;
}

void Tracker::read_contents(Node& node, py::Borrowed contents) {
  PyObject* object = node.object.get();
  if (PyDict_Check(object)) {
    record_fact(node, Accessor::kKeys, py::Ref::steal(PySequence_Tuple(contents)));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(contents, &position, &key, &value)) record(node, Accessor::kDictItem, key, 0, value);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    record_fact(node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(Py_SIZE(contents))));
    for (Py_ssize_t i = 0; i < Py_SIZE(contents); ++i) {
      record(node, Accessor::kItem, nullptr, i, PySequence_Fast_GET_ITEM(contents, i));
    }
  } else if (is_deque(object)) {
    const py::Ref items = PyList_Check(contents) ? py::Ref::share(contents) : deque_items(contents);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      record(node, Accessor::kItem, nullptr, i, PyList_GET_ITEM(items.get(), i));
    }
    if (items) record_fact(node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(PyList_GET_SIZE(items.get()))));
  } else if (PyAnySet_Check(object)) {
    record_fact(node, Accessor::kMembers, py::Ref::steal(PyFrozenSet_New(contents)));
  }
}

bool Tracker::read_original_contents(Node& node) {
  const Record* written = journal_.find(node.object.get());
  read_contents(node, written == nullptr ? node.object.get() : written->before.get());
  return PyErr_Occurred() == nullptr;
}

bool Tracker::examine(PyObject* owner, Aspect aspect) {
  owner = behind_view(owner);
  Node* node = provenance_.find(owner);
  if (node == nullptr) return true;
  if (!is_container(owner)) {
    if (aspect != Aspect::kType) record_opaque(*node);
    return PyErr_Occurred() == nullptr;
  }
  if (aspect != Aspect::kType && journal_.find(owner) != nullptr) {
    // Guards speak about the state before the call: what the program sees now follows from all of it.
    return read_original_contents(*node);
  }
  switch (aspect) {
    case Aspect::kType:
      break;
    case Aspect::kLength:
      record_fact(*node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(PyObject_Size(owner))));
      break;
    case Aspect::kTruth:
      record_fact(*node, Accessor::kTruth, py::Ref::share(PyObject_Size(owner) != 0 ? Py_True : Py_False));
      break;
    case Aspect::kKeys:
      if (!PyDict_Check(owner)) return read_original_contents(*node);
      record_fact(*node, Accessor::kKeys, py::Ref::steal(PySequence_Tuple(owner)));
      break;
    case Aspect::kContents:
      return read_original_contents(*node);
  }
  return PyErr_Occurred() == nullptr;
}

bool Tracker::examine_presence(PyObject* owner, PyObject* key) {
  record_key(key);
  Node* node = provenance_.find(owner);
  if (node == nullptr) return true;
  if (journal_.find(owner) != nullptr) return read_original_contents(*node);
  const bool is_dict = PyDict_Check(owner);
  const int found = is_dict ? PyDict_Contains(owner, key) : PySet_Contains(owner, key);
  if (found < 0) return PyErr_Clear(), true;  // the program is about to meet the same exception
  if (is_dict && found == 0) {
    record(*node, Accessor::kDictItem, key, 0, nullptr);
    return true;
  }
  if (provenance_.find_read(*node, Accessor::kDictItem, key, 0) != nullptr) return true;
  const Accessor accessor = is_dict ? Accessor::kPresence : Accessor::kContains;
  if (provenance_.find_read(*node, accessor, key, 0) != nullptr) return true;
  Read read{accessor, is_dict ? Expectation::kPresent : Expectation::kEquality, py::Ref::share(key), 0,
            py::Ref::share(found == 1 ? Py_True : Py_False)};
  if (options_.locate) read.location = options_.locate();
  provenance_.add_read(*node, std::move(read));
  return true;
}

bool Tracker::refuse_depth(py::Borrowed value) {
  PyErr_Format(
      PyExc_NotImplementedError,
      "thunder.jit: a '%.200s' from outside of the function, nested more than %d levels deep, is given to code "
      "in C, which may look into all of it; give it only the part that it needs",
      Py_TYPE(value)->tp_name, kDeepest);
  return false;
}

namespace {

/// Special methods that code in C may call on an object.
constexpr const char* kSpecialMethods =
    "__bool__ __len__ __iter__ __next__ __getitem__ __contains__ __reversed__ __eq__ __ne__ __lt__ __le__ __gt__ "
    "__ge__ __hash__ __index__ __int__ __float__ __complex__ __abs__ __round__ __trunc__ __floor__ __ceil__ __str__ "
    "__repr__ __format__ __bytes__ __add__ __radd__ __mul__ __rmul__ __iadd__ __imul__ __sub__ __rsub__ __truediv__ "
    "__rtruediv__ __neg__ __call__ __dir__ __length_hint__ __sizeof__ __fspath__ __array__";

}  // namespace

bool Tracker::read_deeply(py::Borrowed value, int depth) {
  value = behind_view(value);
  if (is_scalar(value)) return false;
  if (is_real_tensor(value)) return true;
  const bool is_iterator = iterates_over_objects(value);
  if (!is_container(value) && !is_iterator && !PySlice_Check(value)) {
    look_up(value, kSpecialMethods);
    if (Node* node = provenance_.find(value)) record_opaque(*node);
    return false;
  }
  if (depth > kDeepest) return refuse_depth(value);
  if (Node* node = provenance_.find(value); node != nullptr && !node->deeply_read) {
    node->deeply_read = true;
    read_original_contents(*node);
  }
  bool found = false;
  const auto read = [&](PyObject* item) { found |= PyErr_Occurred() == nullptr && read_deeply(item, depth + 1); };
  for_each_item(value, read);
  if (is_iterator) {
    for (const py::Ref& part : referents(value)) read(part.get());
  }
  return found;
}

bool Tracker::looks_into_operands(py::Borrowed object) const {
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return true;  // `%`
  if (is_scalar(object) || is_container(object)) return false;
  return hooks_.is_traced(object) || PyObject_CheckBuffer(object) != 0 || !is_python_class(Py_TYPE(object));
}

PyObject* Tracker::given(PyObject* value) {
  const bool has_real_tensors = read_deeply(value, 0);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return has_real_tensors ? substitute(value, 0).release() : Py_NewRef(value);
}

py::Ref Tracker::substitute(py::Borrowed value, int depth) {
  if (is_real_tensor(value)) return py::Ref::steal(present(Py_NewRef(value)));
  const bool is_iterator = iterates_over_objects(value);
  const bool is_replaced =
      is_iterator || is_container(value) || PySlice_Check(value) || mapping_behind(value) != nullptr;
  if (!is_replaced || !read_deeply(value, depth)) return py::Ref::share(value);
  if (is_iterator) return interpreted_iterator(value);
  if (PyObject* mapping = mapping_behind(value)) return view_like(value, substitute(mapping, depth + 1));
  if (PyDict_Check(value)) {
    py::Ref copy = py::Ref::steal(PyDict_Copy(value));
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (copy && PyDict_Next(value, &position, &key, &item)) {
      const py::Ref replaced = substitute(item, depth + 1);
      if (!replaced || PyDict_SetItem(copy.get(), key, replaced.get()) < 0) return nullptr;
    }
    return copy;
  }
  py::Ref items = py::Ref::steal(PyList_New(0));
  bool failed = !items;
  for_each_item(value, [&](PyObject* item) {
    const py::Ref replaced = failed ? py::Ref() : substitute(item, depth + 1);
    failed = failed || !replaced || PyList_Append(items.get(), replaced.get()) < 0;
  });
  if (failed) return nullptr;
  if (PySlice_Check(value)) {
    PyObject** ends = PySequence_Fast_ITEMS(items.get());
    return py::Ref::steal(PySlice_New(ends[0], ends[1], ends[2]));
  }
  if (is_deque(value)) {
    return py::Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(deque_type()), items.get()));
  }
  return PyTuple_Check(value) ? py::Ref::steal(PyList_AsTuple(items.get())) : items;
}

}  // namespace thunder::interpreter
