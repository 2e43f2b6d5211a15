#include "interpreter/python/cpython_compat.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "interpreter/loop/observe.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/provenance/reads.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// Nested containers of more levels are not followed; a container that holds itself has no end.
constexpr int kDeepest = 32;

/// The mapping that a view or read-only proxy looks into; every other object itself.
py::Borrowed behind_view(py::Borrowed object) {
  PyObject* mapping = mapping_behind(object);
  return mapping == nullptr ? object : py::Borrowed(mapping);
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

/// The object that the program sees in the place of what was read; null: itself, or nothing was read.
PyObject* shown_by(const Read* read) {
  if (read == nullptr) return nullptr;
  return read->part != nullptr ? read->part->seen.get() : read->seen.get();
}

bool refuse_depth(py::Borrowed value) {
  PyErr_Format(
      PyExc_NotImplementedError,
      "thunder.jit: a '%.200s' from outside of the function, nested more than %d levels deep, is given to code "
      "in C, which may look into all of it; give it only the part that it needs",
      Py_TYPE(value)->tp_name, kDeepest);
  return false;
}

/// Which variables a `contextvars.Context` has, and all their values, cannot be guarded.
bool refuse_context() {
  PyErr_SetString(PyExc_NotImplementedError,
                  "thunder.jit: asks a contextvars.Context for more than the value of one variable; use get() of the "
                  "variable");
  return false;
}

/// So are those that compare themselves in code which nobody observes: `typing.Optional[int]`.
bool is_compared_by_identity(py::Borrowed value) {
  static PyObject* const name = PyUnicode_InternFromString("__eq__");
  static PyObject* const module = PyUnicode_InternFromString("__module__");
  static PyObject* const own = _PyType_Lookup(&PyBaseObject_Type, name);
  if (_PyType_Lookup(Py_TYPE(value), name) == own) return true;
  PyObject* where = is_python_class(Py_TYPE(value)) ? _PyType_Lookup(Py_TYPE(value), module) : nullptr;
  return where != nullptr && PyUnicode_Check(where) && PyUnicode_CompareWithASCIIString(where, "typing") == 0;
}

/// An instance of a class made by a class statement, or `object()`. Functions, iterators and the like are none: they
/// are made anew for each use.
bool is_plain_instance(py::Borrowed value) {
  return is_python_class(Py_TYPE(value)) || Py_TYPE(value) == &PyBaseObject_Type;
}

/// Special methods that code in C may call on an object.
constexpr const char* kSpecialMethods =
    "__bool__ __len__ __iter__ __next__ __getitem__ __contains__ __reversed__ __eq__ __ne__ __lt__ __le__ __gt__ "
    "__ge__ __hash__ __index__ __int__ __float__ __complex__ __abs__ __round__ __trunc__ __floor__ __ceil__ __str__ "
    "__repr__ __format__ __bytes__ __add__ __radd__ __mul__ __rmul__ __iadd__ __imul__ __sub__ __rsub__ __truediv__ "
    "__rtruediv__ __neg__ __call__ __dir__ __length_hint__ __sizeof__ __fspath__ __array__ __array_interface__ "
    "__array_struct__ __array_ufunc__ __array_function__ __array_priority__ __torch_function__ __dlpack__";

/// Those that functions of `operator` call, of which the program may have some from C by another name.
constexpr const char* kOperators =
    "__getitem__ __setitem__ __delitem__ __contains__ __add__ __sub__ __mul__ __matmul__ __truediv__ __floordiv__ "
    "__mod__ __pow__ __lshift__ __rshift__ __and__ __or__ __xor__ __neg__ __pos__ __invert__ __iadd__ __isub__ "
    "__imul__ __imatmul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __ilshift__ __irshift__ __iand__ __ior__ "
    "__ixor__";

}  // namespace

void Reads::enter_key(const Node& container, py::Borrowed key) {
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) enter_key(container, PyTuple_GET_ITEM(key, i));
    return;
  }
  // Keys are guarded by which objects they are, also those that compare by what they hold.
  if (PyFunction_Check(key)) return state_.provenance.find(key) == nullptr ? given_.add(key) : record_identity(key);
  const bool is_same_object = is_plain_instance(key) || PyWeakref_CheckRef(key);
  if (!is_same_object || state_.hooks.is_traced(key)) return;
  if (Node* known = state_.provenance.find(key)) return record_state_as(*known, StateKind::kIdentity);
  const std::string name = describe(key) + " in " + container.name;
  const bool is_held_weakly =
      PyType_SUPPORTS_WEAKREFS(Py_TYPE(key)) && classify(key, state_.hooks) == ConstantKind::kUnknown;
  if (!is_held_weakly) {
    admit_constant(key, name);
    return;
  }
  const py::Ref reference = py::Ref::steal(PyWeakref_NewRef(key, nullptr));
  if (!reference) return;
  const Read* read = record(constant(reference.get(), name), Accessor::kReferent, nullptr, 0, key);
  if (read == nullptr || read->part == nullptr) return;
  read->part->name = name;
  record_state_as(*read->part, StateKind::kIdentity);
}

void Reads::record_keys(Node& dict, py::Ref keys) {
  if (keys) enter_key(dict, keys.get());
  record_fact(dict, Accessor::kKeys, std::move(keys));
}

void Reads::read_contents(Node& node, py::Borrowed contents, Audience audience) {
  PyObject* object = node.object.get();
  if (PyDict_Check(object)) {
    note_keys_seen(node);
    record_keys(node, keys_of(contents));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(contents, &position, &key, &value)) record(node, Accessor::kDictItem, key, 0, value, audience);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    record_length(node, Py_SIZE(contents));
    for (Py_ssize_t i = 0; i < Py_SIZE(contents); ++i) {
      record(node, Accessor::kItem, nullptr, i, PySequence_Fast_GET_ITEM(contents, i), audience);
    }
  } else if (is_deque(object)) {
    const py::Ref items = PyList_Check(contents) ? py::Ref::share(contents) : deque_items(contents);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      record(node, Accessor::kItem, nullptr, i, PyList_GET_ITEM(items.get(), i), audience);
    }
    if (items) record_length(node, PyList_GET_SIZE(items.get()));
  } else if (PyAnySet_Check(object)) {
    // One that the program wrote to is made anew of the copy that the journal has, and has the order of that then.
    const py::Ref restored = contents == object ? py::Ref::share(contents) : py::Ref::steal(PySet_New(contents));
    py::Ref members = restored ? members_of(restored.get()) : nullptr;
    if (!members) return;
    enter_key(node, members.get());
    record_fact(node, Accessor::kMembers, std::move(members));
  }
}

bool Reads::read_original_contents(Node& node, Audience audience) {
  const Record* written = state_.journal.find_for_read(node.object.get());
  read_contents(node, written == nullptr ? node.object.get() : written->before.get(), audience);
  return PyErr_Occurred() == nullptr;
}

void Reads::record_exception(Node& node) {
  if (std::exchange(node.deeply_read, true)) return;
  PyObject* exception = node.object.get();
  PyObject* classes = Py_TYPE(exception)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes, i));
    PyObject *name, *descriptor;
    Py_ssize_t position = 0;
    while (!is_python_class(type) && PyDict_Next(dict_of_type(type), &position, &name, &descriptor) != 0) {
      const bool is_part = Py_TYPE(descriptor) == &PyMemberDescr_Type || Py_TYPE(descriptor) == &PyGetSetDescr_Type;
      if (!is_part || PyUnicode_READ_CHAR(name, 0) == '_') continue;  // `args`, not `__traceback__`
      const py::Ref value = py::Ref::steal(PyObject_GenericGetAttr(exception, name));
      PyErr_Clear();
      record_descriptor(exception, name, value.get());
      if (value) read_deeply(value.get());
    }
  }
}

void Reads::record_opaque(Node& node, bool is_given) {
  PyObject* object = node.object.get();
  if (node.trace_tensor || is_real_tensor(object, state_.hooks)) return;
  const StateKind kind = state_kind(object);
  record_state_as(node, kind);
  if (kind == StateKind::kBuffer && PyErr_Occurred() != nullptr) return;
  const bool is_exception = PyExceptionInstance_Check(object) != 0;
  if (is_exception) {
    record_exception(node);
  } else if (object != receiver_ && state_.options.admit_look) {
    const bool is_unknown = classify(object, state_.hooks) == ConstantKind::kUnknown;
    if (is_unknown && !state_.options.admit_look(object, is_given)) return;
  }
  // C code also sees the `__dict__` of an object of a class in C.
  const bool has_parts = PyModule_Check(object) || PyType_Check(object) || PyFunction_Check(object);
  if (has_parts || (is_python_class(Py_TYPE(object)) && !is_exception)) return PyErr_Clear();
  read_instance_dict(node, Told::kIdentities, 1);
}

void Reads::read_instance_dict(Node& node, Told told, int depth) {
  Node* dict = instance_dict_node(node);
  if (dict == nullptr || dict->deeply_read) return PyErr_Clear();
  read_deeply(dict->object.get(), told, depth);
}

void Reads::record_attributes(Node& node, Told told, int depth) {
  static PyObject* const getattribute = PyUnicode_InternFromString("__getattribute__");
  constexpr int kDeepestObject = 3;
  if (depth > kDeepestObject || node.trace_tensor) return;
  PyObject* object = node.object.get();
  record_type_attribute(Py_TYPE(object), getattribute);
  record_class_attributes(Py_TYPE(object));
  for_each_slot(Py_TYPE(object), [&](PyObject* name) {
    const py::Ref value = py::Ref::steal(state_.hooks.attribute(object, name));
    PyErr_Clear();
    record_descriptor(object, name, value.get());
    if (value) read_deeply(value.get(), told, depth + 1);
  });
  read_instance_dict(node, told, depth);
}

bool Reads::examine(PyObject* owner, Aspect aspect) {
  note_class(owner);
  if (PyContext_CheckExact(owner) && aspect != Aspect::kType) return refuse_context();
  owner = behind_view(owner);
  if (aspect != Aspect::kType && !state_.hooks.look_into(owner)) return false;
  Node* node = state_.provenance.find(owner);
  if (node == nullptr) return true;
  if (!is_container(owner)) {
    if (aspect != Aspect::kType) record_opaque(*node, /*is_given=*/false);
    return PyErr_Occurred() == nullptr;
  }
  const Record* written = aspect == Aspect::kType ? nullptr : state_.journal.find_for_read(owner);
  if (written != nullptr && written->is_read) return true;
  const bool is_sequence = written != nullptr && (written->store == Store::kList || written->store == Store::kDeque);
  if (is_sequence && !written->rewritten && (aspect == Aspect::kLength || aspect == Aspect::kTruth)) {
    record_length(*node, length_of(written->before.get()));
    return PyErr_Occurred() == nullptr;
  }
  if (written != nullptr) {
    // Guards speak about the state before the call: what the program sees now follows from all of it.
    return read_original_contents(*node, aspect == Aspect::kContents ? Audience::kCode : Audience::kProgram);
  }
  switch (aspect) {
    case Aspect::kType:
      break;
    case Aspect::kLength:
      record_length(*node, length_of(owner));
      break;
    case Aspect::kTruth:
      record_fact(*node, Accessor::kTruth, py::Ref::share(length_of(owner) != 0 ? Py_True : Py_False));
      break;
    case Aspect::kKeys:
      if (!PyDict_Check(owner)) return read_original_contents(*node);
      record_keys(*node, keys_of(owner));
      break;
    case Aspect::kContents:
      return read_original_contents(*node);
  }
  return PyErr_Occurred() == nullptr;
}

bool Reads::examine_presence(PyObject* owner, PyObject* key) {
  record_key(key);
  record_shared(key, owner);
  Node* node = state_.provenance.find(owner);
  if (node == nullptr) return true;
  if (state_.journal.find(owner) != nullptr) return read_original_contents(*node, Audience::kProgram);
  note_keys_seen(*node);
  const bool is_dict = PyDict_Check(owner);
  const int found = is_dict ? PyDict_Contains(owner, key) : PySet_Contains(owner, key);
  if (found < 0) return PyErr_Clear(), true;  // the program is about to meet the same exception
  parts_.note(*node, Py_False);
  if (is_dict && found == 0) {
    record(*node, Accessor::kDictItem, key, 0, nullptr);
    return true;
  }
  if (state_.provenance.find_read(*node, Accessor::kDictItem, key, 0) != nullptr) return true;
  const Accessor accessor = is_dict ? Accessor::kPresence : Accessor::kContains;
  if (state_.provenance.find_read(*node, accessor, key, 0) != nullptr) return true;
  add(*node, Read{accessor, is_dict ? Expectation::kPresent : Expectation::kEquality, py::Ref::share(key), 0,
                  py::Ref::share(found == 1 ? Py_True : Py_False)});
  return true;
}

bool Reads::examine_identity(PyObject* left, PyObject* right) {
  const auto is_given = [this](PyObject* object) {
    const bool is_constant = PyFloat_CheckExact(object) || PyLong_CheckExact(object);
    return state_.hooks.is_number(object) || (is_constant && given().node_of(object) != nullptr);
  };
  const bool may_change = state_.hooks.is_number(left) || state_.hooks.is_number(right);
  if (left != right && may_change && is_given(left) && is_given(right)) {
    PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: whether two numbers that change are one object is asked");
    return false;
  }
  for (PyObject* object : {left, right}) given().keep_interned(object);
  const auto find = [this](PyObject* object) {
    if (Node* shown = state_.provenance.find_shown(object)) return shown;
    // Numbers, strings and tuples of such are guarded by their values until somebody asks about their identity.
    const bool is_by_value =
        !state_.hooks.is_number(object) && classify(object, state_.hooks) == ConstantKind::kEquality;
    if (is_by_value) return given().node_of(object);
    return state_.hooks.is_traced(object) ? node_behind(object, state_) : state_.provenance.find(object);
  };
  Node* first = find(left);
  Node* second = find(right);
  // A function in a tuple of constants has no node.
  const auto is_unread = [this](PyObject* object, const Node* node) {
    return node == nullptr && PyFunction_Check(object) && !made_functions_.contains(object);
  };
  if (is_unread(left, first)) record_identity(right);
  if (is_unread(right, second)) record_identity(left);
  if (first == nullptr || second == nullptr || first == second) return PyErr_Occurred() == nullptr;
  if (first->is_constant() && second->is_constant()) return true;
  if (Py_TYPE(first->object.get()) != Py_TYPE(second->object.get())) return true;
  PyObject* key = second->object.get();
  if (state_.provenance.find_read(*first, Accessor::kOther, key, 0) != nullptr) return true;
  first->needed = second->needed = true;
  add(*first, Read{Accessor::kOther, Expectation::kEquality, py::Ref::share(key), 0, py::Ref::share(Py_False), second});
  return true;
}

// An int that other calls have others for is an object of its own here. In eager equal ones are one object, if they are
// small.
int Reads::is_same(PyObject* left, PyObject* right) {
  const auto changes = [this](PyObject* object) { return is_changing_int(object, state_.hooks); };
  const auto is_int = [&](PyObject* object) { return PyLong_CheckExact(object) || changes(object); };
  if (left == right || !is_int(left) || !is_int(right) || !(changes(left) || changes(right))) {
    return examine_identity(left, right) ? static_cast<int>(left == right) : -1;
  }
  const int is_equal = PyObject_RichCompareBool(left, right, Py_EQ);
  if (is_equal != 1) return is_equal;
  const int is_kept = is_kept_int(changes(left) ? left : right);
  if (is_kept != 0) return is_kept;
  PyErr_SetString(PyExc_NotImplementedError, "thunder.jit: whether two ints that are equal are one object is asked");
  return -1;
}

bool Reads::read_item(PyObject* owner, PyObject* key, PyObject* value, const Read** read) {
  const Audience audience = read == nullptr ? Audience::kCode : Audience::kProgram;
  const auto note = [&](const Read* recorded) {
    if (read != nullptr) *read = recorded;
    return PyErr_Occurred() == nullptr;
  };
  if (Py_TYPE(owner) == &PyDictProxy_Type) {
    const bool is_from_outside = state_.provenance.find(owner) != nullptr;
    owner = mapping_behind(owner);
    // `vars(cls)`, `cls.__dict__`: the dict lives as long as the class.
    if (PyDict_CheckExact(owner) && !is_from_outside) shared_node(owner);
  }
  if (PyContext_CheckExact(owner)) {
    // One that the program made holds what the variables held before.
    if (state_.provenance.find(owner) != nullptr) return refuse_context();
    record_referent(key);
  }
  record_key(key);
  if (PyDict_Check(owner)) record_shared(key, owner);
  Node* node = state_.provenance.find(owner);
  if (node == nullptr) return true;
  if (PyDict_Check(owner)) return note(record_dict_item(*node, key, value, audience));
  const Record* written = state_.journal.find(owner);
  const bool is_sequence = PyList_Check(owner) || (PyTuple_Check(owner) && written == nullptr);
  if (is_sequence && (written == nullptr || !written->rewritten)) {
    if (PyLong_Check(key)) return note(record_list_item(*node, PyLong_AsSsize_t(key), value, audience));
    const bool is_list = PyList_CheckExact(owner) && PyList_CheckExact(value);
    if (is_list && PySlice_Check(key) && audience == Audience::kProgram) return read_slice(*node, key, value);
  }
  return examine(owner, Aspect::kContents);
}

const Read* Reads::record_list_item(Node& list, Py_ssize_t index, py::Borrowed value, Audience audience) {
  PyObject* sequence = list.object.get();
  const Record* written = state_.journal.find_for_read(sequence);
  const Py_ssize_t size = written == nullptr ? Py_SIZE(sequence) : PyList_GET_SIZE(written->before.get());
  if (index < 0 || index >= size) record_length(list, size);
  if (index < 0) index += Py_SIZE(sequence);
  // An item that the program wrote itself is not from outside.
  if (index >= size || (written != nullptr && written->has_written(index))) return nullptr;
  return record(list, Accessor::kItem, nullptr, index, value, audience);
}

bool Reads::read_slice(Node& list, py::Borrowed slice, py::Borrowed taken) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return false;
  const Record* written = state_.journal.find_for_read(list.object.get());
  PyObject* before = written == nullptr ? list.object.get() : written->before.get();
  record_length(list, PyList_GET_SIZE(before));
  const Py_ssize_t count = PySlice_AdjustIndices(PyList_GET_SIZE(list.object.get()), &start, &stop, step);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!show_item(list, start + i * step, taken, i)) return false;
  }
  return true;
}

bool Reads::show_item(Node& list, Py_ssize_t index, py::Borrowed copy, Py_ssize_t place) {
  PyObject* item = PyList_GET_ITEM(static_cast<PyObject*>(copy), place);
  const Read* read = record_list_item(list, index, item, Audience::kProgram);
  if (PyErr_Occurred() != nullptr) return false;
  PyObject* shown = shown_by(read);
  return shown == nullptr || PyList_SetItem(copy, place, Py_NewRef(shown)) == 0;
}

bool Reads::show_items(Node& list) {
  PyObject* object = list.object.get();
  const Py_ssize_t size = PyList_GET_SIZE(state_.journal.find(object)->before.get());
  record_length(list, size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!show_item(list, i, object, i)) return false;
  }
  state_.journal.note_read(object);
  return true;
}

void Reads::read_receiver(py::Borrowed self, Told told) {
  receiver_ = self;
  read_deeply(self, told);
  receiver_ = nullptr;
}

bool Reads::read_deeply(py::Borrowed value, Told told, int depth) {
  value = behind_view(value);
  if (is_scalar(value)) return false;
  if (PyContext_CheckExact(static_cast<PyObject*>(value))) return refuse_context();
  if (is_real_tensor(value, state_.hooks)) return true;
  const bool is_iterator = iterates_over_objects(value);
  if (!is_container(value) && !is_iterator && !PySlice_Check(value)) {
    record_look_up(value, kSpecialMethods);
    const auto is_observed = [&] { return has_observed(value, kSpecialMethods) && has_observed(value, kOperators); };
    if (told == Told::kMethods && !is_observed()) told = Told::kAttributes;
    if (told == Told::kAttributes && !refuse_aliases(value, kOperators)) return false;
    if (!state_.hooks.look_into(value)) return false;
    Node* node = state_.provenance.find(value);
    if (node == nullptr) return false;
    record_opaque(*node, /*is_given=*/true);
    if (PyErr_Occurred() != nullptr) return false;
    if (told != Told::kContents && PyFunction_Check(value)) record_identity(value);
    if (told == Told::kContents || !is_plain_instance(value)) return false;
    const bool shows_identity = told != Told::kMethods || Py_TYPE(value)->tp_repr == PyBaseObject_Type.tp_repr;
    if (shows_identity && is_compared_by_identity(value)) record_state_as(*node, StateKind::kIdentity);
    if (told == Told::kAttributes) record_attributes(*node, told, depth);
    return false;
  }
  if (depth > kDeepest) return refuse_depth(value);
  if (is_container(value) && !PyTuple_Check(value)) record_look_up(value, "__iter__ __len__ __getitem__ keys");
  if (Node* node = state_.provenance.find(value); node != nullptr && !node->deeply_read) {
    node->deeply_read = true;
    node->keys_are_seen = true;
    read_original_contents(*node);
  }
  bool found = false;
  const auto read = [&](PyObject* item) { found |= PyErr_Occurred() == nullptr && read_deeply(item, told, depth + 1); };
  for_each_item(value, read);
  if (is_iterator) {
    for (const py::Ref& part : referents(value)) read(part.get());
  }
  return found;
}

namespace {

/// Calls `visit(leaf)` for what is in a container, or for the object itself.
template <typename Visit>
void for_each_leaf(py::Borrowed value, const Visit& visit, int depth = 0) {
  value = behind_view(value);
  if ((is_scalar(value) && !is_nan(value)) || depth > kDeepest) return;
  if (!is_container(value) && !PySlice_Check(value)) return visit(value);
  const auto enter = [&](PyObject* part) { for_each_leaf(part, visit, depth + 1); };
  for_each_item(value, enter);
  for_each_key(value, enter);
}

bool has_nan_key(py::Borrowed container) {
  bool found = false;
  for_each_key(behind_view(container),
               [&](PyObject* key) { for_each_leaf(key, [&](py::Borrowed leaf) { found |= is_nan(leaf); }); });
  return found;
}

}  // namespace

void Reads::record_identity(py::Borrowed object) {
  Node* node = state_.provenance.find(object);
  if (node != nullptr && !node->trace_tensor) record_state_as(*node, StateKind::kIdentity);
}

void Reads::record_identities(py::Borrowed value) {
  for_each_leaf(value, [this](py::Borrowed leaf) {
    if (is_real_tensor(leaf, state_.hooks)) return;
    if (const py::Ref self = self_of_method(leaf)) {
      record_identity(self.get());
      if (PyMethod_Check(leaf)) record_identity(PyMethod_GET_FUNCTION(static_cast<PyObject*>(leaf)));
    } else if (is_compared_by_identity(leaf)) {
      record_identity(leaf);
    }
  });
}

void Reads::record_asked_attribute(py::Borrowed value, py::Borrowed name) {
  static PyObject* const getattribute = PyUnicode_InternFromString("__getattribute__");
  static PyObject* const getattr = PyUnicode_InternFromString("__getattr__");
  for_each_leaf(value, [&](py::Borrowed leaf) {
    if (PyType_Check(leaf)) record_type_attribute(reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(leaf)), name);
    if (!may_define_methods(leaf)) return;
    note_class(leaf);
    for (PyObject* each : {static_cast<PyObject*>(name), getattribute, getattr}) {
      record_type_attribute(Py_TYPE(leaf), each);
    }
    Node* node = state_.provenance.find(leaf);
    Node* dict = node == nullptr ? nullptr : instance_dict_node(*node);
    if (dict == nullptr) return;
    record_dict_item(*dict, name, PyDict_GetItemWithError(dict->object.get(), name));
  });
}

void Reads::record_shared(py::Borrowed left, py::Borrowed right) {
  std::vector<Node*> ours;
  std::vector<PyObject*> without_value;  // each NaN is equal to itself alone
  for_each_leaf(left, [&](py::Borrowed leaf) {
    if (is_nan(leaf)) without_value.push_back(leaf);
    const bool is_asked = is_python_class(Py_TYPE(leaf)) && !is_compared_by_identity(leaf);
    Node* node = is_asked ? state_.provenance.find(leaf) : nullptr;
    if (node != nullptr && !node->trace_tensor) ours.push_back(node);
  });
  if (ours.empty() && without_value.empty()) return;
  // No read shows the keys, so that none tells which object a NaN among them is.
  if (!without_value.empty() && has_nan_key(right)) {
    for (PyObject* each : without_value) {
      if (Node* node = given().node_of(each)) record_state_as(*node, StateKind::kIdentity);
    }
  }
  for_each_leaf(right, [&](py::Borrowed leaf) {
    if (is_nan(leaf)) {
      for (PyObject* other : without_value) examine_identity(other, leaf);
      return;
    }
    Node* node = state_.provenance.find(leaf);
    if (std::ranges::find(ours, node) != ours.end()) record_state_as(*node, StateKind::kIdentity);
  });
}

bool Reads::read_names(py::Borrowed object) {
  Node* node = PyModule_Check(object) ? shared_node(object) : state_.provenance.find(object);
  Node* dict = node == nullptr || PyType_Check(object) ? nullptr : instance_dict_node(*node);
  if (dict != nullptr && !examine(dict->object.get(), Aspect::kKeys)) return false;
  PyObject* type = PyType_Check(object) ? static_cast<PyObject*>(object) : reinterpret_cast<PyObject*>(Py_TYPE(object));
  PyObject* bases = reinterpret_cast<PyTypeObject*>(type)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    if (is_immutable_type(base) || !is_python_class(base)) continue;
    PyObject* names = dict_of_type(base);  // which lives as long as the class
    shared_node(names, std::string(base->tp_name) + ".__dict__");
    if (!examine(names, Aspect::kKeys)) return false;
  }
  return true;
}

bool Reads::read_state(py::Borrowed owner) {
  if (owner != nullptr) record_look_up(owner, "__reduce__ __getstate__ __getnewargs__ __getnewargs_ex__");
  Node* node = owner == nullptr ? nullptr : state_.provenance.find(owner);
  if (node == nullptr) return true;
  read_deeply(owner, Told::kContents);
  if (Node* dict = instance_dict_node(*node)) {
    if (!read_original_contents(*dict)) return false;
  }
  for_each_slot(Py_TYPE(owner), [&](PyObject* name) {
    const py::Ref value = py::Ref::steal(state_.hooks.attribute(owner, name));
    PyErr_Clear();
    record_descriptor(owner, name, value.get());
  });
  return PyErr_Occurred() == nullptr;
}

}  // namespace thunder::interpreter
