#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

Py_ssize_t list_index(py::Borrowed list, py::Borrowed key) {
  if (!PyLong_Check(key)) return -1;
  const Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  return index < 0 ? index + Py_SIZE(list) : index;
}

PyObject* call_name() {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  return name;
}

/// A write to an attribute of this type raises.
bool is_read_only_type(py::Borrowed owner) {
  return PyType_HasFeature(reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(owner)), Py_TPFLAGS_IMMUTABLETYPE);
}

/// Whether a method of a container looks into its arguments.
bool looks_at_arguments(NativeEffect effect) {
  return effect == NativeEffect::kAppend || effect == NativeEffect::kUpdate || effect == NativeEffect::kChange ||
         effect == NativeEffect::kGetContents;
}

std::size_t count_with_keywords(std::size_t count, py::Borrowed names) {
  return count + (names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names)));
}

}  // namespace

// Guards that an item is there if it is to be deleted.
bool Tracker::write_dict_item(Node& dict, py::Borrowed key, bool removes) {
  PyObject* object = dict.object.get();
  if (removes) record_dict_item(dict, key, PyDict_GetItemWithError(object, key));
  return PyErr_Occurred() == nullptr && journal_.before_dict_item(object, key, removes);
}

bool Tracker::write_attribute(py::Borrowed owner, py::Borrowed name, bool removes) {
  if (hooks_.is_traced(owner)) {
    const py::Ref real = py::Ref::steal(hooks_.original(owner));
    if (!real || _PyType_Lookup(Py_TYPE(owner), name) != nullptr) return load_tensor_state(owner, name);
    PyErr_Format(PyExc_NotImplementedError,
                 "thunder.jit: sets the attribute %R of a tensor from outside of the function; set it after the call",
                 static_cast<PyObject*>(name));
    return false;
  }
  Node* node = PyType_Check(owner) ? &provenance_.constant(owner) : provenance_.find(owner);
  if (node == nullptr) return true;
  if (PyType_Check(owner)) return is_read_only_type(owner) || journal_.before_slot(owner, name);
  if (PyCell_Check(static_cast<PyObject*>(owner))) return journal_.before_cell(owner);
  record_type_attribute(Py_TYPE(owner), name);
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    // A property's setter is Python: its own writes are seen.
    if (is_read_only(descriptor)) return true;
    const bool is_slot = Py_TYPE(descriptor) == &PyMemberDescr_Type || Py_TYPE(descriptor) == &PyGetSetDescr_Type;
    if (is_slot && removes) {
      const py::Ref value = py::Ref::steal(hooks_.attribute(owner, name));
      PyErr_Clear();
      record_descriptor(owner, name, value.get());
    }
    if (is_slot) return journal_.before_slot(owner, name);
    // Others in C (fields of `ctypes`) keep what is set where nobody sees it.
    return is_python_class(Py_TYPE(descriptor)) || Py_TYPE(descriptor) == &PyProperty_Type || write_contents(owner);
  }
  Node* dict = instance_dict_node(*node);
  return dict == nullptr ? write_contents(owner) : write_dict_item(*dict, name, removes);
}

bool Tracker::write_item(Node& node, py::Borrowed key, bool removes) {
  PyObject* owner = node.object.get();
  if (PyDict_Check(owner)) return write_dict_item(node, key, removes);
  const Record* written = journal_.find(owner);
  const Py_ssize_t index = PyList_Check(owner) && !removes ? list_index(owner, key) : -1;
  if (index < 0 || index >= Py_SIZE(owner) || (written != nullptr && written->appended)) return write_contents(owner);
  record_fact(node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(Py_SIZE(owner))));
  return journal_.before_list_item(owner, index);
}

bool Tracker::write_contents(py::Borrowed owner) {
  if (provenance_.find(owner) == nullptr || journal_.before_contents(owner)) return true;
  if (PyErr_Occurred() != nullptr) return false;
  PyErr_Format(PyExc_NotImplementedError,
               PyIter_Check(owner)
                   ? "thunder.jit: an iterator from outside of the function ('%.200s') is advanced inside of it, which "
                     "later calls could not repeat; call next() outside and pass the value"
                   : "thunder.jit: expected writes to lists, dicts, sets, deques and attributes, got one to an object "
                     "of type '%.200s' from outside of the function; write to it after the call",
               Py_TYPE(owner)->tp_name);
  return false;
}

bool Tracker::before_write(PyObject* owner, WriteKind kind, PyObject* key) {
  // Into objects that the program made, too. Containers that a trial writes to are its own: see `read_cell`.
  trial_.has_read |= kind == WriteKind::kAttribute || kind == WriteKind::kDeleteAttribute || kind == WriteKind::kCell;
  switch (kind) {
    case WriteKind::kAttribute:
    case WriteKind::kDeleteAttribute:
      return write_attribute(owner, key, kind == WriteKind::kDeleteAttribute);
    case WriteKind::kGlobal:
    case WriteKind::kDeleteGlobal:
      return write_dict_item(provenance_.constant(owner), key, kind == WriteKind::kDeleteGlobal);
    case WriteKind::kCell:
      return provenance_.find(owner) == nullptr || journal_.before_cell(owner);
    case WriteKind::kItem:
    case WriteKind::kDeleteItem: {
      Node* node = provenance_.find(owner);
      return node == nullptr || write_item(*node, key, kind == WriteKind::kDeleteItem);
    }
    case WriteKind::kContents:
      return write_contents(owner);
  }
  return true;
}

/// Notes the special methods that a function in C with a known effect looks up in the class of its first argument.
void Tracker::look_up_for(NativeEffect effect, PyObject* argument) {
  if (effect == NativeEffect::kLength) return look_up(argument, "__len__");
  if (effect == NativeEffect::kNames) return look_up(argument, "__dir__");
  if (effect == NativeEffect::kContents || effect == NativeEffect::kPairs) {
    look_up(argument, "__iter__ __getitem__ __len__ __reversed__ __length_hint__");
  }
}

/// Guards the result of `dir`: the names in an object, in its class and in the bases of that.
bool Tracker::read_names(py::Borrowed object) {
  Node* node = PyModule_Check(object) ? &provenance_.constant(object) : provenance_.find(object);
  Node* dict = node == nullptr || PyType_Check(object) ? nullptr : instance_dict_node(*node);
  if (dict != nullptr && !examine(dict->object.get(), Aspect::kKeys)) return false;
  PyObject* type = PyType_Check(object) ? static_cast<PyObject*>(object) : reinterpret_cast<PyObject*>(Py_TYPE(object));
  PyObject* bases = reinterpret_cast<PyTypeObject*>(type)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    if (is_read_only_type(reinterpret_cast<PyObject*>(base)) || !is_python_class(base)) continue;
    PyObject* names = dict_of_type(base);  // which lives as long as the class
    provenance_.constant(names, std::string(base->tp_name) + ".__dict__");
    if (!examine(names, Aspect::kKeys)) return false;
  }
  return true;
}

bool Tracker::apply_effect(const NativeCall& call, NativeEffect effect) {
  PyObject* self = call.self;
  PyObject* key = call.count > 0 ? call.arguments[0] : nullptr;
  Node* node = self == nullptr ? nullptr : provenance_.find(self);
  if (key != nullptr) look_up_for(effect, key);
  if (self != nullptr && key != nullptr && (PyDict_Check(self) || PyAnySet_Check(self))) record_key(key);
  switch (effect) {
    case NativeEffect::kOpaque:
    case NativeEffect::kNothing:
      return true;
    case NativeEffect::kContents:
      return consume_all(call);
    case NativeEffect::kPairs:
      return consume_all(call) && consume_pairs(call);
    case NativeEffect::kLength:
      return (self == nullptr && key == nullptr) || examine(self != nullptr ? self : key, Aspect::kLength);
    case NativeEffect::kSetAttribute: {
      PyObject* name = self == nullptr ? (call.count > 1 ? call.arguments[1] : nullptr) : key;
      PyObject* owner = self == nullptr ? key : self;
      const bool removes = call.count + (self == nullptr ? 0 : 1) < 3;
      return name == nullptr || !PyUnicode_Check(name) || write_attribute(owner, name, removes);
    }
    case NativeEffect::kIdentity:
      if (Node* seen = key == nullptr ? nullptr : provenance_.find(key); seen != nullptr && !seen->stand_in) {
        record_state_as(*seen, StateKind::kIdentity);
      }
      return true;
    case NativeEffect::kHash:
      if (key != nullptr) record_key(key);
      return key == nullptr || examine(key, Aspect::kContents);
    case NativeEffect::kCallable:
      if (key != nullptr && !PyType_Check(key)) record_type_attribute(Py_TYPE(key), call_name());
      return true;
    case NativeEffect::kNames:
      return key == nullptr || read_names(key);
    case NativeEffect::kDictOf:
      if (key != nullptr && hooks_.is_traced(key)) return read_all_attributes_behind(key);
      if (Node* owner = key == nullptr ? nullptr : provenance_.find(key)) instance_dict_node(*owner);
      return true;
    case NativeEffect::kState:
      return (self == nullptr && key == nullptr) || read_state(self != nullptr ? self : key);
    case NativeEffect::kGlobals:
      provenance_.constant(PyEval_GetGlobals());
      return true;
    case NativeEffect::kGetItem:
    case NativeEffect::kHasItem:
    case NativeEffect::kPopItem:
    case NativeEffect::kSetDefault:
    case NativeEffect::kSetItem:
    case NativeEffect::kGetKeys:
    case NativeEffect::kGetContents:
    case NativeEffect::kCompare:
    case NativeEffect::kCompareAndChange:
    case NativeEffect::kAppend:
    case NativeEffect::kAppendOne:
    case NativeEffect::kAdd:
    case NativeEffect::kDiscard:
    case NativeEffect::kUpdate:
    case NativeEffect::kDeleteItem:
    case NativeEffect::kChange:
      break;
  }
  if (effect == NativeEffect::kCompare || effect == NativeEffect::kCompareAndChange) {
    if (self != nullptr) read_deeply(self, 0);
    for (std::size_t i = 0; i < call.count; ++i) read_deeply(call.arguments[i], 0);
    if (PyErr_Occurred() != nullptr) return false;
    return node == nullptr || effect == NativeEffect::kCompare || write_contents(self);
  }
  if (effect == NativeEffect::kUpdate && !consume_pairs(call)) return false;
  const bool is_slice = effect == NativeEffect::kSetItem && key != nullptr && PySlice_Check(key) && call.count > 1;
  if (is_slice && !consume(call.arguments[1])) return false;
  if (node == nullptr) return !looks_at_arguments(effect) || consume_all(call);
  if (effect == NativeEffect::kGetKeys) return examine(self, Aspect::kKeys);
  if (effect == NativeEffect::kGetContents) return examine(self, Aspect::kContents) && consume_all(call);
  if (effect == NativeEffect::kHasItem && key != nullptr) return examine_presence(self, key);
  if (effect == NativeEffect::kAppendOne) return journal_.before_append(self);
  if (effect == NativeEffect::kAppend) return journal_.before_append(self) && (key == nullptr || consume(key));
  if (effect == NativeEffect::kUpdate) return update_dict(*node, call);
  if (effect == NativeEffect::kChange || key == nullptr) return write_contents(self) && consume_all(call);
  if (effect == NativeEffect::kAdd) return journal_.before_set_member(self, key, false);
  if (effect == NativeEffect::kDiscard) return journal_.before_set_member(self, key, true);
  if (effect == NativeEffect::kDeleteItem) return write_item(*node, key, true);
  if (effect != NativeEffect::kSetItem) {
    if (!PyDict_Check(self)) {
      PyObject* item = PyLong_Check(key) ? PySequence_GetItem(self, PyLong_AsSsize_t(key)) : nullptr;
      if (item == nullptr) PyErr_Clear();
      if (item == nullptr) return examine(self, Aspect::kContents);
      item = read_item(self, key, item);
      Py_XDECREF(item);
      return item != nullptr;
    }
    PyObject* value = PyDict_GetItemWithError(self, key);
    if (value == nullptr && PyErr_Occurred() != nullptr) return false;
    record_dict_item(*node, key, value);
  }
  if (effect == NativeEffect::kGetItem) return true;
  if (effect == NativeEffect::kSetItem) return write_item(*node, key, false);
  const bool is_there = PyDict_Contains(self, key) == 1;
  return is_there != (effect == NativeEffect::kPopItem) || write_item(*node, key, is_there);
}

void Tracker::read_referent(py::Borrowed reference) {
  if (!PyWeakref_CheckRef(reference) && !PyContextVar_CheckExact(reference)) return;
  Node* node = provenance_.find(reference);
  if (node == nullptr) return;
  const py::Ref value = referent_of(reference);
  record(*node, Accessor::kReferent, nullptr, 0, value.get());
}

bool Tracker::consume(py::Borrowed value) {
  if (PyIter_Check(value) && provenance_.find(value) != nullptr) return write_contents(value);
  return examine(value, Aspect::kContents);
}

bool Tracker::consume_all(const NativeCall& call) {
  return std::all_of(call.arguments, call.arguments + call.count, [&](PyObject* value) { return consume(value); });
}

// The pairs that a dict is made of.
bool Tracker::consume_pairs(const NativeCall& call) {
  for (std::size_t i = 0; i < call.count; ++i) {
    if (!PyDict_Check(call.arguments[i])) read_deeply(call.arguments[i], 0);
  }
  return PyErr_Occurred() == nullptr;
}

bool Tracker::update_dict(Node& node, const NativeCall& call) {
  PyObject* dict = node.object.get();
  for (std::size_t i = 0; i < call.count; ++i) {
    PyObject* source = call.arguments[i];
    if (!consume(source)) return false;
    if (!PyDict_CheckExact(source)) return write_contents(dict);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(source, &position, &key, &value)) {
      if (!journal_.before_dict_item(dict, key, false)) return false;
    }
  }
  for (Py_ssize_t i = 0; call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (!journal_.before_dict_item(dict, PyTuple_GET_ITEM(call.names, i), false)) return false;
  }
  return true;
}

bool Tracker::read_state(py::Borrowed owner) {
  Node* node = owner == nullptr ? nullptr : provenance_.find(owner);
  if (node == nullptr) return true;
  read_deeply(owner, 0);
  if (Node* dict = instance_dict_node(*node)) {
    if (!read_original_contents(*dict)) return false;
  }
  for_each_slot(Py_TYPE(owner), [&](PyObject* name) {
    const py::Ref value = py::Ref::steal(hooks_.attribute(owner, name));
    PyErr_Clear();
    record_descriptor(owner, name, value.get());
  });
  return PyErr_Occurred() == nullptr;
}

/// Whether one of the calls of a memoized function was computed by this trace, and holds tensors of it.
bool Tracker::holds_traced(py::Borrowed value, int depth) const {
  if (hooks_.is_traced(value)) return true;
  constexpr int kDeepest = 4;
  if (depth > kDeepest) return false;
  const auto any_of = [&](PyObject* const* items, Py_ssize_t count) {
    return std::any_of(items, items + count, [&](PyObject* item) { return holds_traced(item, depth + 1); });
  };
  if (PyList_Check(value) || PyTuple_Check(value)) return any_of(PySequence_Fast_ITEMS(value), Py_SIZE(value));
  const py::Ref attributes = PyDict_Check(value) ? py::Ref::share(value) : instance_dict(value);
  PyObject *key, *item;
  Py_ssize_t position = 0;
  while (attributes && PyDict_Next(attributes.get(), &position, &key, &item)) {
    if (holds_traced(item, depth + 1)) return true;
  }
  return false;
}

// Calls a function under functools.lru_cache. Its result stays in its cache, as in eager, unless it consists of tensors
// of the trace.
int Tracker::call_memoized(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                           PyObject** result) {
  const auto misses = [&] {
    const py::Ref info = py::Ref::steal(PyObject_CallMethod(callable, "cache_info", nullptr));
    return info ? PyLong_AsLong(PyTuple_GET_ITEM(info.get(), 1)) : -1;
  };
  const long before = misses();
  const std::uint64_t writes = journal_.write_count();
  ++memoized_depth_;
  *result = PyObject_Vectorcall(callable, arguments, count, names);
  --memoized_depth_;
  if (*result == nullptr) return -1;
  if (misses() != before) {
    if (journal_.write_count() != writes) writing_memoized_.push_back(py::Ref::share(callable));
    memoized_.push_back(py::Ref::share(*result));
    if (holds_traced(*result, 0)) {
      journal_.call_at_end(py::Ref::steal(PyObject_GetAttrString(callable, "cache_clear")));
    }
  } else if (std::none_of(memoized_.begin(), memoized_.end(),
                          [&](const py::Ref& made) { return made.get() == *result; })) {
    if (classify(*result, hooks_) == ConstantKind::kUnknown && !is_real_tensor(*result)) {
      admit_constant(*result, describe(*result));
    }
  }
  *result = present(*result);
  return *result == nullptr || PyErr_Occurred() != nullptr ? -1 : 1;
}

void Tracker::forget_memoized() {
  const py::SavedError pending;
  for (const py::Ref& function : std::exchange(writing_memoized_, {})) {
    static_cast<void>(py::Ref::steal(PyObject_CallMethod(function.get(), "cache_clear", nullptr)));
    PyErr_Clear();
  }
}

int Tracker::call_with_stand_ins(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                                 PyObject** result) {
  std::vector<py::Ref> owned;
  std::vector<PyObject*> replaced{nullptr};
  for (std::size_t i = 0; i < count_with_keywords(count, names); ++i) {
    owned.push_back(substitute(arguments[i], 0));
    if (!owned.back()) return -1;
    replaced.push_back(owned.back().get());
  }
  // A write of the call to a copy that it was given would be lost: it is refused.
  std::vector<std::pair<PyObject*, py::Ref>> copies;
  for (std::size_t i = 0; i < owned.size(); ++i) {
    PyObject* given = owned[i].get();
    if (given == arguments[i] || !(PyList_Check(given) || PyDict_Check(given))) continue;
    copies.emplace_back(given, copy_of(given, PyList_Check(given) ? Store::kList : Store::kDict));
  }
  const int status = PyFunction_Check(callable)
                         ? 0
                         : intercept(callable, native_call(callable, replaced.data() + 1, count, names), result);
  if (status < 0) return -1;
  if (status == 0) {
    *result = PyObject_Vectorcall(callable, replaced.data() + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  }
  if (*result == nullptr) return -1;
  for (const auto& [given, before] : copies) {
    if (holds_same(given, before.get())) continue;
    Py_CLEAR(*result);
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: %R writes in C code to a '%.200s' of tensors from outside of the function; do it with the "
        "methods of the container",
        callable, Py_TYPE(given)->tp_name);
    return -1;
  }
  return 1;
}

// A substitute gets what a method is bound to as its first argument.
static int call_substitute(const TrackerOptions::Substitute& substitute, PyObject* callable, PyObject* const* arguments,
                           std::size_t count, PyObject* names, PyObject** result) {
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  if (self == nullptr || PyModule_Check(self) || PyType_Check(self)) return substitute(arguments, count, names, result);
  std::vector<PyObject*> all{self};
  all.insert(all.end(), arguments, arguments + count_with_keywords(count, names));
  return substitute(all.data(), count + 1, names, result);
}

// `functools.partial` of something that is replaced; 0: of anything else.
int Tracker::call_partial(PyObject* partial, PyObject* const* arguments, std::size_t count, PyObject* names,
                          PyObject** result) {
  const auto part = [&](const char* name) { return py::Ref::steal(PyObject_GetAttrString(partial, name)); };
  const py::Ref function = part("func");
  const auto found = function ? options_.substitutes.find(native_identity(function.get())) : options_.substitutes.end();
  if (found == options_.substitutes.end()) return function ? 0 : -1;
  const py::Ref own = part("args");
  const py::Ref keywords = py::Ref::steal(PyDict_New());
  const py::Ref own_keywords = part("keywords");
  if (!own || !keywords || !own_keywords) return -1;
  if (read_deeply(partial, 0) || read_deeply(own.get(), 0) || read_deeply(own_keywords.get(), 0)) return 0;
  if (PyErr_Occurred() != nullptr || PyDict_Update(keywords.get(), own_keywords.get()) < 0) return -1;
  std::vector<PyObject*> all(PySequence_Fast_ITEMS(own.get()), PySequence_Fast_ITEMS(own.get()) + Py_SIZE(own.get()));
  all.insert(all.end(), arguments, arguments + count);
  const std::size_t positional = all.size();
  for (std::size_t i = count; i < count_with_keywords(count, names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i - count));
    if (PyDict_SetItem(keywords.get(), name, arguments[i]) < 0) return -1;
  }
  const py::Ref all_names = py::Ref::steal(PySequence_Tuple(keywords.get()));
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(keywords.get(), &position, &key, &value) != 0;) all.push_back(value);
  if (!all_names) return -1;
  return call_substitute(found->second, function.get(), all.data(), positional, all_names.get(), result);
}

int Tracker::call_unwrapped(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                            PyObject** result) {
  PyObject* inner = options_.unwrap ? options_.unwrap(callable) : nullptr;
  if (inner == nullptr) return 0;
  if (Node* node = provenance_.find(callable)) {
    record_state_as(*node, StateKind::kIdentity);
    if (provenance_.find(inner) == nullptr) admit_constant(inner, expression(*node));
  }
  *result = PyObject_Vectorcall(inner, arguments, count, names);
  return *result == nullptr ? -1 : 1;
}

namespace {

/// Whether `callable` is an unbound method of a class that its first argument is no instance of: `list.append({}, 1)`.
bool is_method_of_another_type(PyObject* callable, const NativeCall& call) {
  if (Py_TYPE(callable) != &PyMethodDescr_Type && Py_TYPE(callable) != &PyWrapperDescr_Type) return false;
  return call.self == nullptr || PyObject_TypeCheck(static_cast<PyObject*>(call.self), PyDescr_TYPE(callable)) == 0;
}

}  // namespace

int Tracker::before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                                PyObject** result) {
  if (std::string_view(Py_TYPE(callable)->tp_name) == "functools.partial") {
    if (const int status = call_partial(callable, arguments, count, names, result); status != 0) return status;
  }
  if (const auto found = options_.substitutes.find(native_identity(callable)); found != options_.substitutes.end()) {
    return call_substitute(found->second, callable, arguments, count, names, result);
  }
  if (const int status = call_unwrapped(callable, arguments, count, names, result); status != 0) return status;
  if (std::string_view(Py_TYPE(callable)->tp_name) == "functools._lru_cache_wrapper") {
    return call_memoized(callable, arguments, count, names, result);
  }
  if (const int status = call_getter(callable, arguments, count, names, result); status != 0) return status;
  const NativeCall call = native_call(callable, arguments, count, names);
  read_referent(call.self != nullptr ? call.self : callable);
  const NativeEffect effect = effect_on_self(call);
  if (effect == NativeEffect::kOpaque) {
    const bool has_real_tensors = read_arguments(call, arguments, count);
    if (PyErr_Occurred() != nullptr) return -1;
    if (has_real_tensors) return call_with_stand_ins(callable, arguments, count, names, result);
  }
  if (const int status = intercept(callable, call, result); status != 0) return status;
  if (is_method_of_another_type(callable, call)) return 0;  // a TypeError, before anything is read or written
  if (effect == NativeEffect::kIdentity && call.count == 1 && tell_identity(call.arguments[0], result)) return 1;
  if (effect == NativeEffect::kOpaque) return call_watched(callable, call, arguments, count, result);
  const bool has_key = call.count > 0 && call.self != nullptr && (PyDict_Check(call.self) || PyAnySet_Check(call.self));
  const py::Ref key = py::Ref::steal(has_key ? operand(call.arguments[0], call.self, true) : nullptr);
  if (has_key && !key) return -1;
  if (!key || key.get() == call.arguments[0]) return apply_effect(call, effect) ? 0 : -1;
  return call_with_key(callable, call, key.get(), arguments, count, result);
}

namespace {

/// `copy.deepcopy`, and what thunder has in its place for tensors, remember by its address what they have copied. Any
/// address will do, so none is guarded.
bool is_in_copy_module() {
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals == nullptr ? nullptr : PyDict_GetItemString(globals, "__name__");
  return name != nullptr && PyUnicode_Check(name) &&
         (PyUnicode_CompareWithASCIIString(name, "copy") == 0 ||
          PyUnicode_CompareWithASCIIString(name, "thunder._copying") == 0);
}

}  // namespace

// The address of a tensor from outside is that of the tensor itself, not of its stand-in.
bool Tracker::tell_identity(py::Borrowed object, PyObject** result) {
  if (is_in_copy_module()) return false;
  const py::Ref real = py::Ref::steal(hooks_.is_traced(object) ? hooks_.original(object) : nullptr);
  Node* node = real ? provenance_.find(real.get()) : nullptr;
  if (node == nullptr) return false;
  record_state_as(*node, StateKind::kIdentity);
  *result = PyLong_FromVoidPtr(real.get());
  return true;
}

// A method of a dict or set whose first argument is another object for the program than in there.
int Tracker::call_with_key(PyObject* callable, NativeCall call, PyObject* key, PyObject* const* arguments,
                           std::size_t count, PyObject** result) {
  std::vector<PyObject*> replaced(arguments, arguments + count_with_keywords(count, call.names));
  replaced[static_cast<std::size_t>(call.arguments - arguments)] = key;
  call.arguments = replaced.data() + (call.arguments - arguments);
  if (!apply_effect(call, effect_of(call))) return -1;
  *result = PyObject_Vectorcall(callable, replaced.data(), count, call.names);
  if (*result != nullptr) *result = present(*result);
  return *result == nullptr ? -1 : 1;
}

PyObject* Tracker::call_beside_memory(PyObject* callable, PyObject* const* arguments, std::size_t count,
                                      PyObject* names) {
  const auto watched = std::exchange(memory_, {});
  py::Ref result = py::Ref::steal(PyObject_Vectorcall(callable, arguments, count, names));
  for (const auto& [object, before] : watched) {
    {
      const py::SavedError pending;
      if (!before || has_state(object.get(), StateKind::kBuffer, before.get())) continue;
      if (restore_buffer(object.get(), before.get()) < 0) PyErr_Clear();
    }
    if (!result) continue;
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: %R writes to the memory of an object of type '%.200s' from outside of the function; write "
        "to it after the call",
        callable, Py_TYPE(object.get())->tp_name);
    return nullptr;
  }
  return result.release();
}

int Tracker::intercept(PyObject* callable, const NativeCall& call, PyObject** result) {
  return options_.intercept ? options_.intercept(callable, call, result) : 0;
}

// Code that may write to the containers among its arguments.
int Tracker::call_watched(PyObject* callable, const NativeCall& call, PyObject* const* arguments, std::size_t count,
                          PyObject** result) {
  bool watches = false;
  const auto watch = [&](PyObject* object) {
    Node* node = object == nullptr ? nullptr : provenance_.find(object);
    if (node == nullptr) return;
    if (state_kind(object) == StateKind::kBuffer) {
      py::Ref before = state_of(object, StateKind::kBuffer);
      if (!before) return;
      memory_.emplace_back(node->object, std::move(before));
    }
    watches |= !memory_.empty() || journal_.watch(object);
  };
  watch(call.self);
  for (std::size_t i = 0; i < count; ++i) watch(arguments[i]);
  if (PyErr_Occurred() != nullptr) return -1;
  if (!watches) return 0;
  *result = call_beside_memory(callable, arguments, count, call.names);
  {
    const py::SavedError pending;
    journal_.end_watch();
  }
  if (*result != nullptr) *result = present(*result);
  return *result == nullptr ? -1 : 1;
}

PyObject* Tracker::after_native_call(PyObject*, PyObject* const*, std::size_t, PyObject*, PyObject* value) {
  PyObject* made = is_real_tensor(value) ? hooks_.make_anew(value) : nullptr;
  if (made == nullptr && PyErr_Occurred() == nullptr) return present(value);
  Py_DECREF(value);
  return made;
}

int Tracker::before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                                PyObject** result) {
  if (function == nullptr) return 0;
  if (const auto found = options_.substitutes.find(function); found != options_.substitutes.end()) {
    return found->second(arguments, count, names, result);
  }
  if (const int status = call_unwrapped(function, arguments, count, names, result); status != 0) return status;
  for (std::size_t i = 0; i < count_with_keywords(count, names); ++i) {
    if (is_real_tensor(arguments[i])) return call_with_stand_ins(function, arguments, count, names, result);
  }
  return 0;
}

}  // namespace thunder::interpreter
