#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/reads.h"

#include <initializer_list>
#include <string_view>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/observe.h"
#include "interpreter/loop/thread_local.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/method_wrapper.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

Node& Reads::constant(py::Borrowed object, const std::string& name) {
  Node& node = state_.provenance.constant(object, name);
  const bool is_dict_of_module = node.accessor == Accessor::kInstanceDict && node.parent->is_constant() &&
                                 PyModule_Check(node.parent->object.get());
  if (!is_dict_of_module) record_state_as(node, StateKind::kIdentity);
  return node;
}

Node& Reads::admit_constant(py::Borrowed object, const std::string& name) {
  Node& node = constant(object, name);
  enter_hidden_parts(node);
  return node;
}

void Reads::enter_unread(py::Borrowed object) {
  if (!PyFunction_Check(object) && !is_enumeration_member(Py_TYPE(object))) return;
  const bool is_of_program = made_functions_.contains(object) || is_made(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (!is_of_program && !is_stand_in(object)) admit_unread(object);
}

void Reads::note_made(py::Borrowed object) {
  made_.emplace(object, py::Ref::share(object));
  PyObject* attributes = nullptr;
  if (PyType_Check(object)) attributes = dict_of_type(reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(object)));
  if (PyModule_Check(object)) attributes = PyModule_GetDict(object);
  if (attributes != nullptr) made_.emplace(attributes, py::Ref::share(attributes));
}

void Reads::note_globals(py::Borrowed dict) {
  if (state_.provenance.find(dict) != nullptr) return;
  PyObject* name = PyDict_GetItemString(dict, "__name__");
  PyObject* module = name == nullptr ? nullptr : PyDict_GetItem(PyImport_GetModuleDict(), name);
  const bool is_of_module = module != nullptr && PyModule_Check(module) && PyModule_GetDict(module) == dict;
  if (!is_of_module) note_made(dict);
}

Node* Reads::shared_node(py::Borrowed object, const std::string& name) {
  return is_made(object) ? nullptr : &constant(object, name);
}

void Reads::admit_unread(py::Borrowed object) {
  if (state_.provenance.find(object) == nullptr) admit_constant(object, describe(object));
}

// Descriptors belong to the class. What code in C finds in a class, it may look into.
ConstantKind Reads::classify_in_class(py::Borrowed value, Audience audience) const {
  const PyTypeObject* type = Py_TYPE(value);
  if (type->tp_descr_get != nullptr || type->tp_descr_set != nullptr) return ConstantKind::kIdentity;
  const ConstantKind kind = classify(value, state_.hooks);
  return kind == ConstantKind::kUnknown && audience == Audience::kCode ? ConstantKind::kIdentity : kind;
}

Read Reads::classify_read(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value,
                          Audience audience) {
  Read read{accessor, Expectation::kAbsent, py::Ref::share(key), index, py::Ref::share(value)};
  if (value == nullptr) return read;
  const ConstantKind kind =
      accessor == Accessor::kTypeAttribute ? classify_in_class(value, audience) : classify(value, state_.hooks);
  if (kind == ConstantKind::kEquality) {
    read.expectation = Expectation::kEquality;
    return read;
  }
  Node* known = state_.provenance.find(value);
  const bool is_constant = kind == ConstantKind::kIdentity && !is_changing_function(owner, read);
  if (is_constant || (known != nullptr && known->is_constant())) {
    read.expectation = Expectation::kIdentity;
    if (known == nullptr && value != Py_None && !PyBool_Check(value)) {
      Node& node = state_.provenance.constant(value);
      node.name = expression(owner, read);
      enter_hidden_parts(node);
    }
    if (known != nullptr) constant(value);
    return read;
  }
  if (known != nullptr) {
    read.expectation = Expectation::kSame;
    read.part = known;
    known->needed = true;
    return read;
  }
  read.expectation = Expectation::kObject;
  read.part = &state_.provenance.add(value, &owner, accessor, key, index);
  enter_hidden_parts(*read.part);
  return read;
}

bool Reads::is_changing_function(const Node& owner, const Read& read) const {
  PyObject* value = read.value.get();
  if (!PyFunction_Check(value) || read.accessor == Accessor::kTypeAttribute) return false;
  if (const Node* known = state_.provenance.find(value)) return !known->is_constant();
  if (!state_.hooks.function_changes(value, expression(owner, read))) return false;
  // Code that nobody observes reads its variables without telling; tuples and keys are guarded with functions in them.
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(value));
  const bool is_seen = !state_.options.treatment || !is_native(state_.options.treatment(code));
  return is_seen && !given_.contains(value);
}

void Reads::lift_number(const Node& owner, Read& read) {
  PyObject* number = read.value.get();
  if (!PyLong_CheckExact(number) && !PyFloat_CheckExact(number)) return;
  read.seen = py::Ref::steal(state_.hooks.lift_number(number, expression(owner, read), &read.input));
  if (read.seen) read.expectation = Expectation::kNumber;
}

const Read* Reads::record_changing_tuple(Node& owner, Read& read) {
  PyObject* tuple = read.value.get();
  if (!PyTuple_Check(tuple) || !state_.hooks.numbers_change(tuple, expression(owner, read))) return nullptr;
  if (Node* known = state_.provenance.find(tuple); known != nullptr && known->seen) {
    read.expectation = Expectation::kSame;
    read.part = known;
    return &add(owner, std::move(read));
  }
  const py::Ref items = items_of(tuple);
  py::Ref seen =
      py::Ref::steal(items ? PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(tuple)), items.get()) : nullptr);
  if (!seen) return nullptr;
  read.expectation = Expectation::kObject;
  read.part = &state_.provenance.add(tuple, &owner, read.accessor, read.key.get(), read.index);
  const Read& added = add(owner, std::move(read));
  if (read_numbers(*added.part, seen.get())) state_.provenance.show_as(*added.part, std::move(seen));
  return &added;
}

bool Reads::read_numbers(Node& container, PyObject* seen) {
  PyObject* sequence = container.object.get();
  record_length(container, Py_SIZE(sequence));
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    const Read* number = record(container, Accessor::kItem, nullptr, i, item, Audience::kProgram);
    if (PyErr_Occurred() != nullptr) return false;
    PyObject* shown = number->part != nullptr ? number->part->seen.get() : number->seen.get();
    if (shown == nullptr) continue;
    PySequence_Fast_ITEMS(seen)[i] = Py_NewRef(shown);
    Py_DECREF(item);
  }
  return true;
}

py::Ref Reads::read_changing_list(py::Borrowed list) {
  Node* node = PyList_CheckExact(static_cast<PyObject*>(list)) ? state_.provenance.find(list) : nullptr;
  if (node == nullptr || state_.journal.find(list) != nullptr) return nullptr;
  if (!state_.hooks.numbers_change(list, expression(*node))) return nullptr;
  py::Ref seen = items_of(list);
  return seen && read_numbers(*node, seen.get()) ? std::move(seen) : py::Ref();
}

void Reads::note_keys_seen(Node& dict) const {
  if (dict.keys_are_seen || !is_table_of_hooks(dict)) return;
  PyObject* globals = PyEval_GetGlobals();
  dict.keys_are_seen = globals == nullptr || !state_.options.is_library || !state_.options.is_library(globals);
}

const Read* Reads::record(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value,
                          Audience audience) {
  if (accessor != Accessor::kTypeAttribute) parts_.note(owner, value);
  if (accessor == Accessor::kDictItem) note_keys_seen(owner);
  if (const Read* known = state_.provenance.find_read(owner, accessor, key, index)) {
    if (known->part != nullptr) note_keys_seen(*known->part);
    const bool is_looked_at = known->expectation == Expectation::kNumber && audience == Audience::kCode;
    if (is_looked_at) state_.hooks.need_number(known->seen.get());
    const bool is_in_class = accessor == Accessor::kTypeAttribute && known->expectation == Expectation::kObject;
    if (is_in_class && audience == Audience::kCode) record_state_as(*known->part, StateKind::kIdentity);
    return known;
  }
  if (value != nullptr && state_.hooks.is_traced(value)) return nullptr;
  Read read = classify_read(owner, accessor, key, index, value, audience);
  if (read.expectation == Expectation::kEquality && audience == Audience::kProgram) {
    if (const Read* added = record_changing_tuple(owner, read)) return added;
    lift_number(owner, read);
  }
  const bool is_equality = read.expectation == Expectation::kEquality;
  if (is_equality && (PyTuple_Check(value) || is_nan(value))) given_.add(value);
  if (is_equality && PyTuple_Check(value)) record_identities(value);
  Read& added = add(owner, std::move(read));
  if (is_equality && accessor != Accessor::kCall) given_.add_read(owner, added);
  if (added.part != nullptr) note_keys_seen(*added.part);
  return &added;
}

Read& Reads::add(Node& owner, Read read) {
  if (state_.options.locate && &owner != &state_.provenance.call()) read.location = state_.options.locate();
  return state_.provenance.add_read(owner, std::move(read));
}

void Reads::record_fact(Node& owner, Accessor accessor, py::Ref value) {
  parts_.note(owner, value.get());
  if (accessor == Accessor::kKeys) note_keys_seen(owner);
  if (state_.provenance.find_read(owner, accessor, nullptr, 0) != nullptr) return;
  add(owner, Read{accessor, Expectation::kEquality, nullptr, 0, std::move(value)});
}

void Reads::record_length(Node& owner, Py_ssize_t length) {
  record_fact(owner, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(length)));
}

const Read* Reads::record_dict_item(Node& dict, py::Borrowed key, py::Borrowed value, Audience audience) {
  if (const Record* written = state_.journal.find(dict.object.get())) {
    // An item that the program wrote itself is not from outside.
    if (PyDict_GetItemWithError(written->before.get(), key) != value) {
      state_.journal.note_item(*written, key, value);
      return nullptr;
    }
  }
  return record(dict, Accessor::kDictItem, key, 0, value, audience);
}

Node* Reads::instance_dict_node(Node& owner) {
  if (owner.instance_dict != nullptr) return owner.instance_dict;
  const bool is_local = is_thread_local(owner.object.get());
  const py::Ref dict = is_local ? thread_dict(owner.object.get()) : instance_dict(owner.object.get());
  if (!dict) return PyErr_Clear(), nullptr;
  Node* node = state_.provenance.find(dict.get());
  if (node == nullptr && is_local) {
    static PyObject* const name = PyUnicode_InternFromString("__dict__");
    node = record(owner, Accessor::kDescriptor, name, 0, dict.get())->part;
  } else if (node == nullptr) {
    node = &state_.provenance.add(dict.get(), &owner, Accessor::kInstanceDict, nullptr, 0);
  } else if (!PyModule_Check(owner.object.get()) || !owner.is_constant()) {
    record(owner, Accessor::kInstanceDict, nullptr, 0, dict.get());
  }
  owner.instance_dict = node;
  return node;
}

void Reads::record_absent_from_instance(py::Borrowed owner, py::Borrowed name) {
  Node* node = state_.provenance.find(owner);
  if (node == nullptr || PyType_Check(owner)) return;
  if (Node* dict = instance_dict_node(*node)) record_dict_item(*dict, name, nullptr);
}

void Reads::record_descriptor(py::Borrowed owner, py::Borrowed name, py::Borrowed value) {
  const bool is_class = PyType_Check(owner);
  if (is_class && is_immutable_type(reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(owner)))) return;
  Node* node = is_class ? shared_node(owner) : state_.provenance.find(owner);
  if (node == nullptr || is_spelled(name, "__class__")) return;
  if (is_spelled(name, "__dict__")) {
    if (!is_class) instance_dict_node(*node);
    return;
  }
  if (PyCell_Check(static_cast<PyObject*>(owner))) {
    record_cell(*node, value);
    return;
  }
  const Record* written = state_.journal.find_slot(owner, name);
  if (written != nullptr && written->before.get() != value) return state_.journal.note_question(*written);
  record(*node, Accessor::kDescriptor, name, 0, value);
}

const Read* Reads::record_cell(Node& cell, py::Borrowed value, Audience audience) {
  const Record* written = state_.journal.find(cell.object.get());
  if (written != nullptr && written->before.get() != value) return state_.journal.note_question(*written), nullptr;
  return record(cell, Accessor::kCell, nullptr, 0, value, audience);
}

void Reads::record_state_as(Node& node, StateKind kind) {
  const auto index = static_cast<Py_ssize_t>(kind);
  if (kind == StateKind::kNone || (node.is_constant() && !may_change(kind))) return;
  if (state_.provenance.find_read(node, Accessor::kState, nullptr, index) != nullptr) return;
  py::Ref state = state_of(node.object.get(), kind);
  if (!state) return;
  if (kind == StateKind::kBuffer) state_.journal.note_memory(node.object.get(), state.get());
  add(node, Read{Accessor::kState, Expectation::kEquality, nullptr, index, std::move(state)});
}

void Reads::record_memory(py::Borrowed array) {
  if (Node* node = state_.provenance.find(array)) record_state_as(*node, StateKind::kBuffer);
}

void Reads::record_memo(Node& function, py::Ref entry) {
  const auto index = static_cast<Py_ssize_t>(StateKind::kMemo);
  py::Ref key = py::Ref::share(PyTuple_GET_ITEM(entry.get(), 0));
  if (state_.provenance.find_read(function, Accessor::kState, key.get(), index) != nullptr) return;
  add(function, Read{Accessor::kState, Expectation::kEquality, std::move(key), index, std::move(entry)});
}

void Reads::record_key(py::Borrowed key) {
  if (is_scalar(key) || state_.hooks.is_traced(key)) return;
  Node* tensor = is_real_tensor(key, state_.hooks) ? state_.provenance.find(key) : nullptr;
  if (tensor != nullptr) return record_state_as(*tensor, StateKind::kIdentity);
  record_look_up(key, "__hash__ __eq__");
  record_identities(key);
  // Other objects are hashed by C code, which looks at what they hold.
  const bool is_called = PyFunction_Check(key) || PyCFunction_Check(key) || PyMethod_Check(key);
  const bool is_by_python = is_python_class(Py_TYPE(key)) && !is_container(key);
  if (!is_called && !is_by_python && !PyType_Check(key) && !PyModule_Check(key)) {
    read_deeply(key, Told::kContents);
  }
}

/// Guards the entry of `sys.modules` under a name, or its absence.
void Reads::record_loaded_module(py::Borrowed name) {
  if (name == nullptr || !PyUnicode_CheckExact(static_cast<PyObject*>(name))) return;
  PyObject* key = Py_NewRef(name);
  PyUnicode_InternInPlace(&key);
  const py::Ref owned = py::Ref::steal(key);
  PyObject* loaded = PyImport_GetModuleDict();
  record_dict_item(state_.provenance.constant(loaded, "sys.modules"), key, PyDict_GetItemWithError(loaded, key));
}

void Reads::record_referent(py::Borrowed reference) {
  if (!PyWeakref_CheckRef(reference) && !PyContextVar_CheckExact(reference)) return;
  Node* node = state_.provenance.find(reference);
  if (node == nullptr) return;
  const py::Ref value = referent_of(reference);
  record(*node, Accessor::kReferent, nullptr, 0, value.get());
}

void Reads::record_function_part(Node& function, FunctionPart part) {
  const auto index = static_cast<Py_ssize_t>(part);
  if (state_.provenance.find_read(function, Accessor::kFunctionPart, nullptr, index) != nullptr) return;
  PyObject* value = *function_slot(function.object.get(), part);
  if (value != nullptr && PyTuple_Check(value)) given_.add(value);
  const Expectation expectation = value == nullptr ? Expectation::kAbsent : Expectation::kIdentity;
  add(function, Read{Accessor::kFunctionPart, expectation, nullptr, index, py::Ref::share(value)});
}

void Reads::enter_function(Node& function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function.object.get());
  const auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
  if (object->func_closure != nullptr) {
    const py::Ref names = py::Ref::steal(PyCode_GetFreevars(const_cast<PyCodeObject*>(code)));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(object->func_closure); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names.get(), i));
      constant(PyTuple_GET_ITEM(object->func_closure, i), name == nullptr ? "" : name);
    }
  }
  const auto enter = [this](PyObject* value) {
    if (classify(value, state_.hooks) == ConstantKind::kEquality || value == Py_None) return;
    admit_constant(value, describe(value));
  };
  record_function_part(function, FunctionPart::kCode);
  if (code->co_argcount > 0) record_function_part(function, FunctionPart::kDefaults);
  if (code->co_kwonlyargcount > 0) record_function_part(function, FunctionPart::kKeywordDefaults);
  PyObject* defaults = object->func_defaults;
  for (Py_ssize_t i = 0; defaults != nullptr && i < PyTuple_GET_SIZE(defaults); ++i) {
    enter(PyTuple_GET_ITEM(defaults, i));
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  if (object->func_kwdefaults == nullptr) return;
  Node& keyword_defaults = constant(object->func_kwdefaults, function.name + ".__kwdefaults__");
  while (PyDict_Next(object->func_kwdefaults, &position, &key, &value)) {
    enter(value);
    record(keyword_defaults, Accessor::kDictItem, key, 0, value);
  }
}

void Reads::enter_changing_function(Node& function) {
  for (const FunctionPart part : {FunctionPart::kCode, FunctionPart::kGlobals, FunctionPart::kBuiltins}) {
    record_function_part(function, part);
  }
  for (const FunctionPart part : {FunctionPart::kDefaults, FunctionPart::kKeywordDefaults, FunctionPart::kClosure}) {
    PyObject* value = *function_slot(function.object.get(), part);
    const Read* read = record(function, Accessor::kFunctionPart, nullptr, static_cast<Py_ssize_t>(part), value);
    if (value != nullptr && PyTuple_Check(value)) given_.add(value);
    if (read != nullptr && read->part != nullptr) read_original_contents(*read->part);
  }
}

void Reads::enter_hidden_parts(Node& node) {
  PyObject* object = node.object.get();
  const auto enter = [&](std::initializer_list<const char*> names) {
    for (const char* text : names) {
      const py::Ref name = py::Ref::steal(PyUnicode_InternFromString(text));
      const py::Ref part = py::Ref::steal(PyObject_GenericGetAttr(object, name.get()));
      if (!part) {
        PyErr_Clear();
      } else if (node.is_constant()) {
        if (part.get() == Py_None) continue;
        state_.provenance.find(part.get()) == nullptr ? admit_constant(part.get(), node.name) : constant(part.get());
      } else {
        record(node, Accessor::kDescriptor, name.get(), 0, part.get());
      }
    }
  };
  if (PyFunction_Check(object)) return node.is_constant() ? enter_function(node) : enter_changing_function(node);
  if (PyMethod_Check(object)) return enter({"__func__", "__self__"});
  PyObject* const self = PyCFunction_Check(object) ? PyCFunction_GET_SELF(object) : nullptr;
  if (self != nullptr || method_wrapper(object) != nullptr) {
    const bool is_free = self != nullptr && (PyModule_Check(self) || PyType_Check(self));
    if (!is_free || !node.is_constant()) enter({"__self__", "__name__"});
    return;
  }
  if (is_flat_iterator(object)) {
    enter({"base"});
    const py::Ref array = py::Ref::steal(PyObject_GetAttrString(object, "base"));
    return array ? record_memory(array.get()) : PyErr_Clear();
  }
  if (Py_TYPE(object) == &PySuper_Type) return enter({"__thisclass__", "__self__", "__self_class__"});
  if (PyObject* mapping = mapping_behind(object)) {
    if (!node.is_constant()) {
      record(node, Accessor::kReferent, nullptr, 0, mapping);
    } else if (state_.provenance.find(mapping) == nullptr) {
      admit_constant(mapping, node.name);
    }
    return;
  }
  if (state_.options.note_type && !is_python_class(Py_TYPE(object))) state_.options.note_type(Py_TYPE(object));
  // Objects that one in C keeps, and that are guarded with it: code in C reads them when it is used.
  const auto enter_kept = [&](PyObject* part) {
    const bool is_new = !is_scalar(part) && state_.provenance.find(part) == nullptr;
    if (is_new && !is_real_tensor(part, state_.hooks)) admit_constant(part, expression(node));
  };
  if (PySlice_Check(object)) for_each_item(object, enter_kept);
  if (std::string_view(Py_TYPE(object)->tp_name).starts_with("datetime.")) enter({"tzinfo"});
  if (!node.is_constant() && is_plain_value(object)) return record_state_as(node, StateKind::kValue);
  if (const py::Ref parameters = parameters_of_getter(object)) {
    record_state_as(node, StateKind::kIdentity);
    for_each_item(PyTuple_GET_ITEM(parameters.get(), 0), enter_kept);
    for_each_item(PyTuple_GET_ITEM(parameters.get(), 1), enter_kept);
    return;
  }
  if (Py_TYPE(object) == &PyProperty_Type) return enter({"fget", "fset"});
  if (Py_TYPE(object) == &PyStaticMethod_Type || Py_TYPE(object) == &PyClassMethod_Type) return enter({"__func__"});
  if (is_partial(object)) {
    enter({"func", "args", "keywords"});
    for (const char* name : {"args", "keywords"}) {
      const py::Ref part = py::Ref::steal(PyObject_GetAttrString(object, name));
      if (part) read_deeply(part.get(), Told::kContents);
    }
    PyErr_Clear();
  }
}

}  // namespace thunder::interpreter
