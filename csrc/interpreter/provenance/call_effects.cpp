#include "interpreter/python/cpython_compat.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "interpreter/loop/observe.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/native_calls.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/method_wrapper.h"
#include "interpreter/python/object_parts.h"

namespace thunder::interpreter {
namespace {

/// Whether a method of a container looks into its arguments.
bool looks_at_arguments(NativeEffect effect) {
  return effect == NativeEffect::kAppend || effect == NativeEffect::kUpdate || effect == NativeEffect::kChange ||
         effect == NativeEffect::kGetContents;
}

/// Whether the first argument of a method of dicts is a key, where it has one.
bool takes_key(NativeEffect effect) {
  return effect == NativeEffect::kGetItem || effect == NativeEffect::kHasItem || effect == NativeEffect::kPopItem ||
         effect == NativeEffect::kSetDefault || effect == NativeEffect::kSetItem ||
         effect == NativeEffect::kDeleteItem || effect == NativeEffect::kChange;
}

/// Whether a call of `list.sort` has a key, so that nothing but what that gives is compared.
bool sorts_by_key(const NativeCall& call) {
  PyObject* names = call.names;
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    const bool is_key = is_spelled(PyTuple_GET_ITEM(names, i), "key");
    if (is_key) return call.arguments[call.count + static_cast<std::size_t>(i)] != Py_None;
  }
  return false;
}

/// The dict whose keys an iteration over an object gives; null for all else.
PyObject* dict_of_keys(PyObject* object) {
  const bool is_view = PyDictKeys_Check(object) || Py_TYPE(object) == &PyDictProxy_Type;
  PyObject* mapping = is_view ? mapping_behind(object) : object;
  return PyDict_Check(mapping) ? mapping : nullptr;
}

/// `set.pop` takes a member that depends on what was done to the set before, which no guard can tell.
bool refuse_pop(const NativeCall& call) {
  static const void* const pop = native_identity(PyDict_GetItemString(dict_of_type(&PySet_Type), "pop"));
  if (call.function != pop || PySet_GET_SIZE(call.self) <= 1) return false;
  PyErr_SetString(PyExc_NotImplementedError,
                  "thunder.jit: pop() of a set from outside of the function, which may take any member of it; use "
                  "min() or max(), and remove()");
  return true;
}

/// The item of a list, tuple or deque at an index, negative ones counted from the end; null without an exception for
/// all else, and where there is none.
py::Ref item_of(py::Borrowed container, py::Borrowed index) {
  if (!PyLong_Check(index)) return nullptr;
  const Py_ssize_t length = length_of(container);
  Py_ssize_t place = PyLong_AsSsize_t(index);
  if (place == -1 && PyErr_Occurred() != nullptr) return PyErr_Clear(), nullptr;
  if (place < 0) place += length;
  if (place < 0 || place >= length) return nullptr;
  if (is_deque(container)) return py::Ref::share(deque_item(container, place));
  const bool is_sequence = PyList_Check(container) || PyTuple_Check(container);
  return py::Ref::share(is_sequence ? PySequence_Fast_GET_ITEM(static_cast<PyObject*>(container), place) : nullptr);
}

/// Whether `dict` may take the keys of an object that is no dict, and not the pairs that it iterates over.
bool may_be_mapping(py::Borrowed object) {
  static PyObject* const keys = PyUnicode_InternFromString("keys");
  static PyObject* const by_name = PyUnicode_InternFromString("__getattr__");
  PyTypeObject* type = Py_TYPE(object);
  if (_PyType_Lookup(type, keys) != nullptr || _PyType_Lookup(type, by_name) != nullptr) return true;
  const py::Ref own = py::Ref::steal(PyObject_GenericGetAttr(object, keys));
  PyErr_Clear();
  return static_cast<bool>(own);
}

/// Whether code in C that hashes `member`, or the key of a pair, raises there.
bool stops_at(py::Borrowed member, bool is_pair) {
  const bool is_sequence = PyTuple_Check(member) || PyList_Check(member);
  if (is_pair && is_sequence && Py_SIZE(member) != 2) return true;
  if (is_pair && !is_sequence) return Py_TYPE(member)->tp_iter == nullptr && PySequence_Check(member) == 0;
  PyObject* key =
      is_pair ? PySequence_Fast_GET_ITEM(static_cast<PyObject*>(member), 0) : static_cast<PyObject*>(member);
  return Py_TYPE(key)->tp_hash == &PyObject_HashNotImplemented;
}

/// A list of what an iterable gives to code in C that hashes its members, or makes a dict of its pairs.
py::Ref hashed_members(py::Borrowed iterable, bool are_pairs) {
  const py::Ref iterator = py::Ref::steal(PyObject_GetIter(iterable));
  py::Ref members = py::Ref::steal(iterator ? PyList_New(0) : nullptr);
  while (members) {
    const py::Ref member = py::Ref::steal(PyIter_Next(iterator.get()));
    if (!member) return PyErr_Occurred() == nullptr ? std::move(members) : py::Ref();
    if (PyList_Append(members.get(), member.get()) < 0) return nullptr;
    if (stops_at(member.get(), are_pairs)) break;
  }
  return members;
}

/// How much a function in C tells of its arguments, by the use that it makes of them.
Reads::Told told_to(IdentityUse use) {
  if (use == IdentityUse::kNone) return Reads::Told::kContents;
  if (use == IdentityUse::kAsks) return Reads::Told::kMethods;
  return use == IdentityUse::kMayTell ? Reads::Told::kAttributes : Reads::Told::kIdentities;
}

}  // namespace

int NativeCalls::call_with_members(const VectorCall& call, const NativeCall& native, NativeEffect effect,
                                   PyObject** result) {
  static PyObject* const iter = PyUnicode_InternFromString("__iter__");
  const auto is_unseen = [this](PyObject* argument) {
    return PyIter_Check(argument) ? state_.provenance.find(argument) == nullptr
                                  : has_python_method(Py_TYPE(argument), iter);
  };
  if (std::ranges::none_of(call.all(), is_unseen)) return 0;
  const IdentityUse use = identity_use(native);
  const bool makes_pairs = effect == NativeEffect::kPairs || effect == NativeEffect::kUpdate;
  if (!makes_pairs && use != IdentityUse::kHashes && use != IdentityUse::kHashesFirst) return 0;
  std::vector<PyObject*> replaced(call.all().begin(), call.all().end());
  std::vector<py::Ref> owned;
  const std::size_t skipped = static_cast<std::size_t>(native.arguments - call.arguments);
  const std::size_t end = use == IdentityUse::kHashesFirst ? std::min<std::size_t>(call.count, 1) : call.count;
  for (std::size_t i = skipped; i < end; ++i) {
    if (!is_unseen(replaced[i]) || (makes_pairs && may_be_mapping(replaced[i]))) continue;
    py::Ref members = hashed_members(replaced[i], makes_pairs);
    if (!members) return -1;
    replaced[i] = members.get();
    owned.push_back(std::move(members));
  }
  return owned.empty() ? 0 : call_seen({call.callable, replaced.data(), call.count, call.names}, result);
}

/// Notes the special methods that a function in C with a known effect looks up in the class of its first argument.
void NativeCalls::look_up_for(NativeEffect effect, PyObject* argument) {
  if (effect == NativeEffect::kLength) reads_.record_look_up(argument, "__len__");
  if (effect == NativeEffect::kNames) reads_.record_look_up(argument, "__dir__");
  if (effect == NativeEffect::kContents || effect == NativeEffect::kPairs) {
    reads_.record_look_up(argument, "__iter__ __getitem__ __len__ __reversed__ __length_hint__");
  }
}

bool NativeCalls::consume(py::Borrowed value) {
  if (PyIter_Check(value) && state_.provenance.find(value) != nullptr) return writes_.write_contents(value);
  return reads_.examine(value, Aspect::kContents);
}

bool NativeCalls::consume_all(const NativeCall& call) {
  return std::all_of(call.arguments, call.arguments + call.count, [&](PyObject* value) { return consume(value); });
}

// A dict hashes its keys, and compares them with others of the same hash. It only keeps its values.
void NativeCalls::consume_pair(py::Borrowed pair, py::Borrowed dict) {
  if (!PyList_Check(pair) && !PyTuple_Check(pair)) {
    reads_.read_deeply(pair);
    return;
  }
  if (!reads_.examine(pair, Aspect::kContents) || Py_SIZE(pair) == 0) return;
  PyObject* key = PySequence_Fast_GET_ITEM(static_cast<PyObject*>(pair), 0);
  reads_.record_key(key);
  if (dict != nullptr) reads_.record_shared(key, dict);
}

// The pairs that a dict is made of. Keys of another dict were read when they came there.
bool NativeCalls::consume_pairs(const NativeCall& call) {
  const py::Ref known = call.self != nullptr && PyDict_Check(call.self) ? keys_of(call.self) : py::Ref();
  for (std::size_t i = 0; i < call.count; ++i) {
    PyObject* source = call.arguments[i];
    PyObject* mapping = PyDict_Check(source) ? source : mapping_behind(source);
    const bool has_pairs = mapping == nullptr ? PyList_Check(source) || PyTuple_Check(source) || is_deque(source)
                                              : PyObject_TypeCheck(source, &PyDictValues_Type) != 0;
    if (has_pairs) {
      if (!reads_.examine(source, Aspect::kContents)) return false;
      for_each_item(mapping == nullptr ? source : mapping, [&](PyObject* pair) {
        if (PyErr_Occurred() == nullptr) consume_pair(pair, known.get());
      });
    } else if (mapping != nullptr && PyDict_Check(mapping)) {
      if (const py::Ref keys = known ? keys_of(mapping) : py::Ref()) reads_.record_shared(keys.get(), known.get());
    } else if (Py_TYPE(source)->tp_iter != nullptr || PySequence_Check(source) != 0) {
      reads_.read_deeply(source, Reads::Told::kContents);
    }
  }
  return PyErr_Occurred() == nullptr;
}

bool NativeCalls::update_dict(Node& node, const NativeCall& call) {
  PyObject* dict = node.object.get();
  for (std::size_t i = 0; i < call.count; ++i) {
    PyObject* source = call.arguments[i];
    if (!consume(source)) return false;
    if (!PyDict_CheckExact(source)) return writes_.write_contents(dict);
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(source, &position, &key, &value)) {
      if (!state_.journal.before_dict_item(dict, key, false)) return false;
    }
  }
  for (Py_ssize_t i = 0; call.names != nullptr && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (!state_.journal.before_dict_item(dict, PyTuple_GET_ITEM(call.names, i), false)) return false;
  }
  return true;
}

bool NativeCalls::read_arguments(const NativeCall& native, const VectorCall& call) {
  bool has_real_tensors = false;
  const IdentityUse use = identity_use(native);
  const auto asked = state_.options.asked_attributes.find(native.function);
  const bool asks_attribute = asked != state_.options.asked_attributes.end();
  const auto of_call = asks_attribute ? Reads::Told::kContents : told_to(use);
  if (use == IdentityUse::kSame && native.count == 2) reads_.examine_identity(native.arguments[0], native.arguments[1]);
  const bool compares =
      use == IdentityUse::kCompares || use == IdentityUse::kHashes || use == IdentityUse::kHashesFirst;
  if (compares && native.count == 2) {
    reads_.record_shared(native.arguments[0], native.arguments[1]);
  }
  PyObject* globals = observed_globals(native);
  for (PyObject* argument : call.all()) {
    if (globals != nullptr && argument == globals) continue;
    const bool is_kept = use == IdentityUse::kHashesFirst && argument != call.arguments[0];
    const auto told = of_call == Reads::Told::kIdentities && is_kept ? Reads::Told::kContents : of_call;
    if (PyObject* dict = compares && use != IdentityUse::kCompares ? dict_of_keys(argument) : nullptr) {
      if (const py::Ref keys = keys_of(dict)) reads_.record_key(keys.get());
      if (!reads_.examine(dict, Aspect::kKeys)) return false;
      continue;
    }
    if ((compares || use == IdentityUse::kRefers) && !is_kept) reads_.record_identities(argument);
    Node* tensor =
        use == IdentityUse::kRefers && state_.hooks.is_traced(argument) ? node_behind(argument, state_) : nullptr;
    if (tensor != nullptr) reads_.record_state_as(*tensor, StateKind::kIdentity);
    if (asks_attribute) reads_.record_asked_attribute(argument, asked->second.get());
    has_real_tensors |= reads_.read_deeply(argument, told);
    if (PyErr_Occurred() != nullptr || (PyIter_Check(argument) && !consume(argument))) return false;
  }
  PyObject* self = native.self;
  if (self == nullptr) return has_real_tensors;
  // `send`, `__next__` and the like of what somebody else goes on with.
  const bool advances = PyGen_CheckExact(self) || PyCoro_CheckExact(self) || iterates_over_objects(self) ||
                        special_method_name(call.callable) == "__next__";
  if (advances && !writes_.write_contents(self)) return false;
  if (native.arguments == call.arguments) reads_.read_receiver(self, of_call);
  if (PyType_Check(self)) reads_.record_methods(reinterpret_cast<PyTypeObject*>(self));
  return has_real_tensors;
}

bool NativeCalls::apply_effect(const NativeCall& call, NativeEffect effect) {
  static PyObject* const call_name = PyUnicode_InternFromString("__call__");
  PyObject* self = call.self;
  PyObject* key = call.count > 0 ? call.arguments[0] : nullptr;
  Node* node = self == nullptr ? nullptr : state_.provenance.find(self);
  if (key != nullptr) look_up_for(effect, key);
  if (self != nullptr && key != nullptr && (PyDict_Check(self) ? takes_key(effect) : PyAnySet_Check(self) != 0)) {
    reads_.record_key(key);
    reads_.record_shared(key, self);
  }
  switch (effect) {
    case NativeEffect::kOpaque:
    case NativeEffect::kNothing:
      return true;
    case NativeEffect::kContents:
      return consume_all(call);
    case NativeEffect::kPairs:
      return consume_all(call) && consume_pairs(call);
    case NativeEffect::kLength:
      return (self == nullptr && key == nullptr) || reads_.examine(self != nullptr ? self : key, Aspect::kLength);
    case NativeEffect::kSetAttribute: {
      PyObject* name = self == nullptr ? (call.count > 1 ? call.arguments[1] : nullptr) : key;
      PyObject* owner = self == nullptr ? key : self;
      const bool removes = call.count + (self == nullptr ? 0 : 1) < 3;
      return name == nullptr || !PyUnicode_Check(name) || writes_.write_attribute(owner, name, removes);
    }
    case NativeEffect::kIdentity:
      if (Node* seen = key == nullptr ? nullptr : state_.provenance.find(key); seen != nullptr && !seen->trace_tensor) {
        reads_.record_state_as(*seen, StateKind::kIdentity);
      }
      return true;
    case NativeEffect::kHash:
      if (key == nullptr) key = self;  // `object.__hash__`
      if (key != nullptr) reads_.record_key(key);
      return key == nullptr || reads_.examine(key, Aspect::kContents);
    case NativeEffect::kCallable:
      if (key != nullptr && !PyType_Check(key)) reads_.record_type_attribute(Py_TYPE(key), call_name);
      return true;
    case NativeEffect::kNames:
      return key == nullptr || reads_.read_names(key);
    case NativeEffect::kDictOf:
      if (key != nullptr && state_.hooks.is_traced(key)) return tensors_.read_all_attributes_behind(key);
      if (Node* owner = key == nullptr ? nullptr : state_.provenance.find(key)) reads_.instance_dict_node(*owner);
      return true;
    case NativeEffect::kState:
      return (self == nullptr && key == nullptr) || reads_.read_state(self != nullptr ? self : key);
    case NativeEffect::kSubclasses:
      if (Node* of_class = self != nullptr && PyType_Check(self) ? reads_.shared_node(self) : nullptr) {
        reads_.record_state_as(*of_class, StateKind::kSubclasses);
      }
      return PyErr_Occurred() == nullptr;
    case NativeEffect::kGlobals:
      reads_.shared_node(PyEval_GetGlobals());
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
      return apply_to_container(node, call, effect);
  }
  return true;
}

/// Reads and writes of methods of containers; `node` is that of the container, or null.
bool NativeCalls::apply_to_container(Node* node, const NativeCall& call, NativeEffect effect) {
  PyObject* self = call.self;
  PyObject* key = call.count > 0 ? call.arguments[0] : nullptr;
  if (effect == NativeEffect::kCompareAndChange && sorts_by_key(call)) effect = NativeEffect::kChange;
  if (effect == NativeEffect::kCompare || effect == NativeEffect::kCompareAndChange) {
    const auto read = [this](PyObject* object) {
      reads_.record_identities(object);
      reads_.read_deeply(object);
    };
    if (self != nullptr) read(self);
    for (std::size_t i = 0; i < call.count; ++i) read(call.arguments[i]);
    if (self != nullptr && key != nullptr) reads_.record_shared(self, key);
    if (PyErr_Occurred() != nullptr) return false;
    return node == nullptr || effect == NativeEffect::kCompare || writes_.write_contents(self);
  }
  const bool joins_dicts = effect == NativeEffect::kGetContents && self != nullptr && PyDict_Check(self);
  if ((effect == NativeEffect::kUpdate || joins_dicts) && !consume_pairs(call)) return false;
  const bool is_slice = effect == NativeEffect::kSetItem && key != nullptr && PySlice_Check(key) && call.count > 1;
  if (is_slice && !consume(call.arguments[1])) return false;
  if (node == nullptr) return !looks_at_arguments(effect) || consume_all(call);
  if (effect == NativeEffect::kGetKeys) return reads_.examine(self, Aspect::kKeys);
  if (effect == NativeEffect::kGetContents) return reads_.examine(self, Aspect::kContents) && consume_all(call);
  if (effect == NativeEffect::kHasItem && key != nullptr) return reads_.examine_presence(self, key);
  if (effect == NativeEffect::kAppendOne) return state_.journal.before_append(self);
  if (effect == NativeEffect::kAppend) return state_.journal.before_append(self) && (key == nullptr || consume(key));
  if (effect == NativeEffect::kUpdate) return update_dict(*node, call);
  if (effect == NativeEffect::kChange && PySet_Check(self) && refuse_pop(call)) return false;
  if (effect == NativeEffect::kChange || key == nullptr) return writes_.write_contents(self) && consume_all(call);
  if (effect == NativeEffect::kAdd) return state_.journal.before_set_member(self, key, false);
  if (effect == NativeEffect::kDiscard) return state_.journal.before_set_member(self, key, true);
  if (effect == NativeEffect::kDeleteItem) return writes_.write_item(*node, key, true);
  if (effect != NativeEffect::kSetItem) {
    if (!PyDict_Check(self)) {
      const py::Ref item = item_of(self, key);
      if (item) return reads_.read_item(self, key, item.get());
      return reads_.examine(self, Aspect::kContents);
    }
    PyObject* value = PyDict_GetItemWithError(self, key);
    if (value == nullptr && PyErr_Occurred() != nullptr) return false;
    reads_.record_dict_item(*node, key, value);
  }
  if (effect == NativeEffect::kGetItem) return true;
  if (effect == NativeEffect::kSetItem) return writes_.write_item(*node, key, false);
  const bool is_there = PyDict_Contains(self, key) == 1;
  return is_there != (effect == NativeEffect::kPopItem) || writes_.write_item(*node, key, is_there);
}

}  // namespace thunder::interpreter
