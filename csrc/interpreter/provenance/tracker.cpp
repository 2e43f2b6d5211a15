#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/tracker.h"

#include <algorithm>
#include <initializer_list>
#include <ranges>
#include <string_view>
#include <utility>

#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// Whether an object is among these items, or inside of a tuple among them.
bool holds(py::Borrowed items, py::Borrowed value) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    if (item == value || (PyTuple_CheckExact(item) && holds(item, value))) return true;
  }
  return false;
}

/// Whether equal objects of its type are one object.
bool is_one_of_its_kind(py::Borrowed value) {
  constexpr long kLeast = -5;  // CPython has one object for each integer from here
  constexpr long kGreatest = 256;
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(value, &overflow);
    return overflow == 0 && number >= kLeast && number <= kGreatest;
  }
  if (PyUnicode_CheckExact(value)) return PyUnicode_CHECK_INTERNED(static_cast<PyObject*>(value)) != 0;
  return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 0;
}

/// `read` shall give the object of `node`, which it gave while the function was traced.
void expect_same(Read& read, Node& node) {
  read.expectation = Expectation::kSame;
  read.part = &node;
}

bool is_slot(py::Borrowed name, const char* spelling) { return PyUnicode_CompareWithASCIIString(name, spelling) == 0; }

constexpr unsigned long kNeverTensor =
    Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS |
    Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS | Py_TPFLAGS_BASE_EXC_SUBCLASS | Py_TPFLAGS_TYPE_SUBCLASS;

bool is_immutable_type(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0;
}

}  // namespace

Tracker::Tracker(TensorHooks& hooks, TrackerOptions options)
    : hooks_(hooks),
      options_(std::move(options)),
      caller_(py::Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())))) {}

bool Tracker::is_frame_of_caller(py::Borrowed value) const {
  py::Ref frame = caller_;
  while (frame && frame.get() != value) {
    frame = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.get()))));
  }
  return static_cast<bool>(frame);
}

bool Tracker::is_real_tensor(py::Borrowed value) const {
  PyTypeObject* type = Py_TYPE(value);
  if ((type->tp_flags & kNeverTensor) != 0 || value == Py_None || type == &PyFloat_Type || type == &PyFunction_Type) {
    return false;
  }
  return hooks_.is_real_tensor(value);
}

PyObject* Tracker::lift(Node& node) {
  if (!node.stand_in) node.stand_in = py::Ref::steal(hooks_.lift(node.object.get(), expression(node)));
  return Py_XNewRef(node.stand_in.get());
}

PyObject* Tracker::present(PyObject* value) {
  if (Py_TYPE(value) == &PyFrame_Type && is_frame_of_caller(value)) {
    Py_DECREF(value);
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: the frame that calls the function is looked at, which is another one at each call");
    return nullptr;
  }
  if (!is_real_tensor(value)) return value;
  const py::Ref real = py::Ref::steal(value);
  return lift(provenance_.constant(value, "<constant tensor>"));
}

PyObject* Tracker::operand(PyObject* value, PyObject* other, bool is_key) {
  if (is_key && (PyDict_Check(other) || PyAnySet_Check(other)) && provenance_.find(other) != nullptr) {
    // Keys of containers from outside are the tensors themselves, not their stand-ins.
    PyObject* real = hooks_.is_traced(value) ? hooks_.original(value) : nullptr;
    if (real != nullptr) return real;
  }
  const py::Ref seen = py::Ref::steal(looks_into_operands(other) ? given(value) : Py_NewRef(value));
  if (!seen) return nullptr;
  const bool concerns_numbers = hooks_.is_number(value) || (is_key && hooks_.is_traced(other));
  return concerns_numbers ? hooks_.operand(seen.get(), other, is_key) : Py_NewRef(seen.get());
}

PyObject* Tracker::admit_argument(Py_ssize_t index, const std::string& name, py::Borrowed value) {
  PyObject* key = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  if (key == nullptr) return nullptr;
  PyUnicode_InternInPlace(&key);
  const py::Ref owned = py::Ref::steal(key);
  record(provenance_.call(), Accessor::kArgument, key, index, value);
  if (Node* node = provenance_.find(value); node != nullptr && node->name.empty()) node->name = name;
  return present(Py_NewRef(value));
}

PyObject* Tracker::admit_keyword(py::Borrowed name, py::Borrowed value) {
  record(provenance_.call(), Accessor::kKeyword, name, 0, value);
  return present(Py_NewRef(value));
}

Node& Tracker::admit_constant(py::Borrowed object, const std::string& name) {
  Node& node = provenance_.constant(object, name);
  enter_hidden_parts(node);
  return node;
}

Read Tracker::classify_read(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value) {
  Read read{accessor, Expectation::kAbsent, py::Ref::share(key), index, py::Ref::share(value)};
  if (value == nullptr) return read;
  const ConstantKind kind = accessor == Accessor::kTypeAttribute ? ConstantKind::kIdentity : classify(value, hooks_);
  if (kind == ConstantKind::kEquality) {
    read.expectation = Expectation::kEquality;
    return read;
  }
  Node* known = provenance_.find(value);
  if (kind == ConstantKind::kIdentity || (known != nullptr && known->is_constant())) {
    read.expectation = Expectation::kIdentity;
    if (known == nullptr && value != Py_None && !PyBool_Check(value)) {
      Node& node = provenance_.constant(value);
      node.name = expression(owner, read);
      enter_hidden_parts(node);
    }
    return read;
  }
  if (known != nullptr) {
    read.expectation = Expectation::kSame;
    read.part = known;
    return read;
  }
  read.expectation = Expectation::kObject;
  read.part = &provenance_.add(value, &owner, accessor, key, index);
  enter_hidden_parts(*read.part);
  return read;
}

bool Tracker::is_of_library(PyTypeObject* type, py::Borrowed name) const {
  for (Py_ssize_t i = 0; options_.is_library && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* attributes = dict_of_type(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
    if (PyDict_GetItemWithError(attributes, name) == nullptr) continue;
    PyObject* module_name = PyDict_GetItemString(attributes, "__module__");
    PyObject* module =
        module_name == nullptr ? nullptr : PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
    return module != nullptr && PyModule_Check(module) && options_.is_library(PyModule_GetDict(module));
  }
  return false;
}

void Tracker::note_read(Node& owner, py::Borrowed value) {
  if (!trial_.runs || value == nullptr || trial_.has_read) return;
  PyTypeObject* type = Py_TYPE(value);
  const bool is_definition = PyCallable_Check(value) != 0 || PyModule_Check(value) || PyCell_Check(value) ||
                             type == &PyStaticMethod_Type || type == &PyClassMethod_Type || type == &PyProperty_Type ||
                             type->tp_descr_get != nullptr;
  if (is_definition) return;
  PyObject* from = owner.object.get();
  if (from != nullptr && PyDict_Check(from) && options_.is_library && options_.is_library(from)) return;
  trial_.has_read = true;
}

void Tracker::record(Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, py::Borrowed value) {
  if (accessor != Accessor::kTypeAttribute) note_read(owner, value);
  if (provenance_.find_read(owner, accessor, key, index) != nullptr) return;
  if (value != nullptr && hooks_.is_traced(value)) return;
  Read read = classify_read(owner, accessor, key, index, value);
  if (read.expectation == Expectation::kEquality && (PyTuple_Check(value) || is_nan(value)))
    given_.push_back(read.value);
  const bool is_argument = &owner == &provenance_.call();
  if (options_.locate && !is_argument) read.location = options_.locate();
  const bool is_equality = read.expectation == Expectation::kEquality;
  Read& added = provenance_.add_read(owner, std::move(read));
  if (is_equality && !is_one_of_its_kind(value) && accessor != Accessor::kCall) {
    equal_reads_[value].push_back({&owner, &added});
    Node* node = provenance_.find(value);
    if (node != nullptr && !node->is_constant()) expect_same(added, *node);
  }
}

Node* Tracker::given_constant(py::Borrowed value) {
  if (Node* known = provenance_.find(value)) return known;
  if (is_one_of_its_kind(value) || is_code_constant(value)) return nullptr;
  // By position: what is read of a tuple may be another one.
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const py::Ref tuple = given_[i];
    if (!PyTuple_Check(tuple.get())) continue;
    Node* whole = tuple.get() != value && holds(tuple.get(), value) ? given_constant(tuple.get()) : nullptr;
    if (whole != nullptr) read_places(*whole, value);
  }
  const auto found = equal_reads_.find(value);
  if (found == equal_reads_.end()) return nullptr;
  const auto& [owner, read] = found->second.front();
  read->part = &provenance_.add(value, owner, read->accessor, read->key.get(), read->index);
  for (std::size_t i = 1; i < found->second.size(); ++i) expect_same(*found->second[i].read, *read->part);
  return read->part;
}

// Where in a tuple of constants, which is guarded as a whole, a part lies.
void Tracker::read_places(Node& tuple, py::Borrowed value) {
  PyObject* items = tuple.object.get();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    if (item == value || (PyTuple_CheckExact(item) && holds(item, value))) {
      record(tuple, Accessor::kItem, nullptr, i, item);
    }
  }
}

void Tracker::record_fact(Node& owner, Accessor accessor, py::Ref value) {
  if (provenance_.find_read(owner, accessor, nullptr, 0) != nullptr) return;
  Read read{accessor, Expectation::kEquality, nullptr, 0, std::move(value)};
  if (options_.locate) read.location = options_.locate();
  provenance_.add_read(owner, std::move(read));
}

void Tracker::record_dict_item(Node& dict, py::Borrowed key, py::Borrowed value) {
  if (const Record* written = journal_.find(dict.object.get())) {
    // An item that the program wrote itself is not from outside.
    if (PyDict_GetItemWithError(written->before.get(), key) != value) return;
  }
  record(dict, Accessor::kDictItem, key, 0, value);
}

void Tracker::record_type_attribute(PyTypeObject* type, py::Borrowed name) {
  if (is_immutable_type(type)) return;
  Node& node = provenance_.constant(reinterpret_cast<PyObject*>(type));
  if (trial_.runs && !is_of_library(type, name)) note_read(node, _PyType_Lookup(type, name));
  if (provenance_.find_read(node, Accessor::kTypeAttribute, name, 0) != nullptr) return;
  if (is_written_in_class(type, name)) return record_written_type_attribute(type, name);
  record(node, Accessor::kTypeAttribute, name, 0, _PyType_Lookup(type, name));
}

namespace {

/// Calls `visit(base, name, entry)` for what a class and its bases that can change hold.
template <typename Visit>
void for_each_entry(PyTypeObject* type, Visit&& visit) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* name = nullptr;
    PyObject* entry = nullptr;
    Py_ssize_t position = 0;
    while (!is_immutable_type(base) && PyDict_Next(dict_of_type(base), &position, &name, &entry)) {
      visit(base, name, entry);
    }
  }
}

}  // namespace

// Methods of a class that C may look up and call, as `torch.autograd.Function.apply` does with `forward`.
void Tracker::record_methods(PyTypeObject* type) {
  if (is_immutable_type(type)) return;
  std::vector<py::Ref> names;
  for_each_entry(type, [&](PyTypeObject*, PyObject* name, PyObject* value) {
    const bool is_method =
        PyFunction_Check(value) || Py_TYPE(value) == &PyStaticMethod_Type || Py_TYPE(value) == &PyClassMethod_Type;
    if (is_method) names.push_back(py::Ref::share(name));
  });
  for (const py::Ref& name : names) record_type_attribute(type, name.get());
}

namespace {

/// The function that an entry of a class holds, or null.
PyObject* function_in(PyObject* entry) {
  static PyObject* const name = PyUnicode_InternFromString("__func__");
  if (PyFunction_Check(entry)) return entry;
  if (Py_TYPE(entry) != &PyStaticMethod_Type && Py_TYPE(entry) != &PyClassMethod_Type) return nullptr;
  const py::Ref function = py::Ref::steal(PyObject_GenericGetAttr(entry, name));
  PyErr_Clear();
  return function && PyFunction_Check(function.get()) ? function.get() : nullptr;
}

bool is_special_name(PyObject* name) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  return text != nullptr && std::string_view(text).starts_with("__") && std::string_view(text).ends_with("__");
}

}  // namespace

void Tracker::record_special_methods(PyTypeObject* type, const PyCodeObject* code) {
  if (is_immutable_type(type) || !entered_.emplace(type, code).second) return;
  std::vector<std::pair<PyTypeObject*, py::Ref>> found;
  for_each_entry(type, [&](PyTypeObject* base, PyObject* name, PyObject* value) {
    PyObject* function = function_in(value);
    if (function != nullptr && PyFunction_GET_CODE(function) == reinterpret_cast<const PyObject*>(code) &&
        is_special_name(name)) {
      found.emplace_back(base, py::Ref::share(name));
    }
  });
  for (const auto& [base, name] : found) {
    record_type_attribute(type, name.get());
    if (base != type) record_type_attribute(base, name.get());
  }
}

void Tracker::enter_method(PyCodeObject* code, PyObject* self) {
  record_special_methods(Py_TYPE(self), code);
  if (PyType_Check(self)) record_special_methods(reinterpret_cast<PyTypeObject*>(self), code);
}

void Tracker::look_up(PyObject* object, const char* names) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_python_class(type) || is_immutable_type(type) || is_real_tensor(object) || hooks_.is_traced(object)) {
    return;
  }
  if (!looked_up_.emplace(type, names).second) return;
  for (const auto name : std::views::split(std::string_view(names), ' ')) {
    const py::Ref key = py::Ref::steal(PyUnicode_FromStringAndSize(&*name.begin(), std::ranges::ssize(name)));
    record_type_attribute(type, key.get());
  }
}

void Tracker::construct(PyTypeObject* type) {
  static PyObject* const make = PyUnicode_InternFromString("__new__");
  static PyObject* const init = PyUnicode_InternFromString("__init__");
  static PyObject* const call = PyUnicode_InternFromString("__call__");
  if (options_.note_type && !is_python_class(type)) options_.note_type(type);
  if (!is_python_class(type)) return;
  record_type_attribute(type, make);
  record_type_attribute(type, init);
  record_type_attribute(Py_TYPE(type), call);
}

void Tracker::made(PyObject* object) {
  static PyObject* const finalizer = PyUnicode_InternFromString("__del__");
  PyTypeObject* type = Py_TYPE(object);
  if (!is_python_class(type) || type->tp_finalize == nullptr || PyObject_IS_GC(object) == 0) return;
  PyObject* method = _PyType_Lookup(type, finalizer);
  py::Ref reference;
  if (method != nullptr && PyFunction_Check(method)) reference = py::Ref::steal(PyWeakref_NewRef(object, nullptr));
  PyErr_Clear();
  if (reference) made_.push_back(std::move(reference));
}

void Tracker::leave_objects() {
  for (const py::Ref& reference : made_) {
    if (const py::Ref object = referent_of(reference.get())) skip_finalizer(object.get());
  }
  made_.clear();
}

bool Tracker::is_written_in_class(PyTypeObject* type, py::Borrowed name) const {
  if (journal_.empty()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    if (journal_.find_slot(PyTuple_GET_ITEM(type->tp_mro, i), name) != nullptr) return true;
  }
  return false;
}

// An attribute that the program wrote into a class is not from outside, but the fact that no nearer class had it is.
void Tracker::record_written_type_attribute(PyTypeObject* type, py::Borrowed name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* object = PyTuple_GET_ITEM(type->tp_mro, i);
    auto* base = reinterpret_cast<PyTypeObject*>(object);
    if (journal_.find_slot(object, name) == nullptr && !is_immutable_type(base)) {
      record(provenance_.constant(object), Accessor::kTypeAttribute, name, 0, original_type_attribute(base, name));
    }
    if (PyDict_Contains(dict_of_type(base), name) == 1) return;
  }
}

PyObject* Tracker::original_type_attribute(PyTypeObject* type, py::Borrowed name) const {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    const Record* written = journal_.find_slot(base, name);
    PyObject* value = written != nullptr ? written->before.get()
                                         : PyDict_GetItem(dict_of_type(reinterpret_cast<PyTypeObject*>(base)), name);
    if (value != nullptr) return value;
  }
  return nullptr;
}

void Tracker::record_super_attribute(py::Borrowed super, py::Borrowed name) {
  const py::Ref first = py::Ref::steal(PyObject_GetAttrString(super, "__thisclass__"));
  const py::Ref last = py::Ref::steal(PyObject_GetAttrString(super, "__self_class__"));
  PyErr_Clear();
  if (!first || !last || !PyType_Check(last.get())) return;
  PyObject* order = reinterpret_cast<PyTypeObject*>(last.get())->tp_mro;
  bool behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    PyObject* base = PyTuple_GET_ITEM(order, i);
    if (behind && PyDict_Contains(dict_of_type(reinterpret_cast<PyTypeObject*>(base)), name) == 1) {
      return record_type_attribute(reinterpret_cast<PyTypeObject*>(base), name);
    }
    if (base == first.get()) behind = true;
  }
}

Node* Tracker::instance_dict_node(Node& owner) {
  if (owner.instance_dict != nullptr) return owner.instance_dict;
  const py::Ref dict = instance_dict(owner.object.get());
  if (!dict) return nullptr;
  Node* node = provenance_.find(dict.get());
  if (node == nullptr) node = &provenance_.add(dict.get(), &owner, Accessor::kInstanceDict, nullptr, 0);
  owner.instance_dict = node;
  return node;
}

void Tracker::record_absent_from_instance(py::Borrowed owner, py::Borrowed name) {
  Node* node = provenance_.find(owner);
  if (node == nullptr || PyType_Check(owner)) return;
  if (Node* dict = instance_dict_node(*node)) record_dict_item(*dict, name, nullptr);
}

void Tracker::record_descriptor(py::Borrowed owner, py::Borrowed name, py::Borrowed value) {
  Node* node = provenance_.find(owner);
  if (node == nullptr || PyType_Check(owner) || is_slot(name, "__class__")) return;
  if (is_slot(name, "__dict__")) {
    instance_dict_node(*node);
    return;
  }
  if (PyCell_Check(static_cast<PyObject*>(owner))) return record_cell(*node, value);
  if (const Record* written = journal_.find_slot(owner, name); written != nullptr && written->before.get() != value) {
    return;
  }
  record(*node, Accessor::kDescriptor, name, 0, value);
}

PyObject* Tracker::read_behind(py::Borrowed traced, py::Borrowed name) {
  const py::Ref real = py::Ref::steal(hooks_.original(traced));
  Node* node = real ? provenance_.find(real.get()) : nullptr;
  if (node == nullptr) return nullptr;
  PyObject* value = hooks_.attribute(real.get(), name);
  if (value == nullptr) return nullptr;
  record(*node, Accessor::kDescriptor, name, 0, value);
  return present(value);
}

bool Tracker::load_tensor_state(py::Borrowed traced, py::Borrowed name) {
  if (!hooks_.is_unknown_state(traced, name)) return true;
  const py::Ref value = py::Ref::steal(read_behind(traced, name));
  if (!value) return PyErr_Occurred() == nullptr;
  return hooks_.learn_state(traced, name, value.get());
}

// A stand-in begins with the attributes that the user gave to the tensor behind it.
void Tracker::read_attribute_behind(py::Borrowed traced, py::Borrowed name, py::Borrowed value) {
  const py::Ref real = py::Ref::steal(hooks_.original(traced));
  Node* node = real ? provenance_.find(real.get()) : nullptr;
  Node* dict = node == nullptr ? nullptr : instance_dict_node(*node);
  if (dict == nullptr || PyDict_GetItemWithError(dict->object.get(), name) != value) return;
  record_dict_item(*dict, name, value);
}

// Reads all attributes that a stand-in begins with: those of the tensor behind it.
bool Tracker::read_all_attributes_behind(py::Borrowed traced) {
  const py::Ref real = py::Ref::steal(hooks_.original(traced));
  Node* node = real ? provenance_.find(real.get()) : nullptr;
  Node* dict = node == nullptr ? nullptr : instance_dict_node(*node);
  return dict == nullptr || read_original_contents(*dict);
}

PyObject* Tracker::read_tensor_attribute(py::Borrowed traced, py::Borrowed name, PyObject* value) {
  py::Ref own = py::Ref::steal(value);
  if (is_slot(name, "__dict__")) return read_all_attributes_behind(traced) ? present(own.release()) : nullptr;
  const bool tells_history = is_slot(name, "grad_fn");  // only inputs that are leaves have no grad_fn
  static PyObject* const leaf = PyUnicode_InternFromString("is_leaf");
  if (tells_history && !load_tensor_state(traced, leaf)) return nullptr;
  if (!hooks_.require_known_state(traced, name)) return nullptr;
  if (!hooks_.is_unknown_state(traced, name)) return present(own.release());
  return load_tensor_state(traced, name) ? hooks_.attribute(traced, name) : nullptr;
}

PyObject* Tracker::read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) {
  static PyObject* const getattribute = PyUnicode_InternFromString("__getattribute__");
  if (PyType_Check(owner)) {
    if (source != AttributeSource::kTypeObject) record_type_attribute(Py_TYPE(owner), name);
    record_type_attribute(Py_TYPE(owner), getattribute);
  }
  switch (source) {
    case AttributeSource::kModule:
    case AttributeSource::kInstance: {
      if (hooks_.is_traced(owner)) {
        read_attribute_behind(owner, name, value);
        break;
      }
      Node* node = PyModule_Check(owner) ? &provenance_.constant(owner) : provenance_.find(owner);
      if (node == nullptr) break;
      if (source == AttributeSource::kInstance) {
        record_type_attribute(Py_TYPE(owner), name);
        record_type_attribute(Py_TYPE(owner), getattribute);
      }
      if (Node* dict = instance_dict_node(*node)) record_dict_item(*dict, name, value);
      break;
    }
    case AttributeSource::kType:
      record_type_attribute(Py_TYPE(owner), name);
      record_type_attribute(Py_TYPE(owner), getattribute);
      record_absent_from_instance(owner, name);
      break;
    case AttributeSource::kTypeObject:
      record_type_attribute(reinterpret_cast<PyTypeObject*>(owner), name);
      break;
    case AttributeSource::kDescriptor:
      if (hooks_.is_traced(owner)) return read_tensor_attribute(owner, name, value);
      record_descriptor(owner, name, value);
      break;
    case AttributeSource::kComputed:
      if (!PyObject_TypeCheck(owner, &PySuper_Type)) return read_computed(owner, name, value);
      record_super_attribute(owner, name);
      break;
  }
  return present(value);
}

bool Tracker::read_missing_attribute(PyObject* owner, PyObject* name) {
  if (PyType_Check(owner)) {
    record_type_attribute(reinterpret_cast<PyTypeObject*>(owner), name);
    return true;
  }
  if (is_thread_local(owner)) {
    record_descriptor(owner, name, nullptr);
    return true;
  }
  if (hooks_.is_traced(owner)) read_attribute_behind(owner, name, nullptr);
  static PyObject* const getattr = PyUnicode_InternFromString("__getattr__");
  record_type_attribute(Py_TYPE(owner), name);
  record_type_attribute(Py_TYPE(owner), getattr);
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor == nullptr || Py_TYPE(descriptor)->tp_descr_set == nullptr) {
    record_absent_from_instance(owner, name);
  } else if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
    record_descriptor(owner, name, nullptr);
  }
  return true;
}

PyObject* Tracker::read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) {
  Node& dict = provenance_.constant(globals);
  if (from_builtins) {
    record_dict_item(dict, name, nullptr);
    record_dict_item(provenance_.constant(PyEval_GetBuiltins()), name, value);
  } else {
    record_dict_item(dict, name, value);
  }
  return present(value);
}

void Tracker::end_part() {
  --part_depth_;
  for (Variable& variable : variables_) {
    if (!std::exchange(variable.is_known, true)) variable.value = py::Ref::share(PyCell_GET(variable.cell.get()));
  }
}

bool Tracker::reads_same_variables() const {
  return std::ranges::all_of(
      variables_, [](const Variable& variable) { return PyCell_GET(variable.cell.get()) == variable.value.get(); });
}

PyObject* Tracker::read_cell(PyObject* cell, PyObject* value) {
  if (part_depth_ > 0) variables_.push_back({py::Ref::share(cell), nullptr});
  Node* node = provenance_.find(cell);
  if (node == nullptr) {
    // The program made the cell, and may read and write it at other times too.
    trial_.has_read |= trial_.runs && value != nullptr && PyCallable_Check(value) == 0 && PyObject_IS_GC(value) &&
                       !PyTuple_Check(value) && !PyModule_Check(value) && !hooks_.is_traced(value);
    return present(value);
  }
  record_cell(*node, value);
  return present(value);
}

void Tracker::record_cell(Node& cell, py::Borrowed value) {
  const Record* written = journal_.find(cell.object.get());
  if (written == nullptr || written->before.get() == value) record(cell, Accessor::kCell, nullptr, 0, value);
}

PyObject* Tracker::read_item(PyObject* owner, PyObject* key, PyObject* value) {
  if (Py_TYPE(owner) == &PyDictProxy_Type) {
    const bool is_from_outside = provenance_.find(owner) != nullptr;
    owner = mapping_behind(owner);
    // `vars(cls)`, `cls.__dict__`: the dict lives as long as the class.
    if (PyDict_CheckExact(owner) && !is_from_outside) provenance_.constant(owner);
  }
  record_key(key);
  Node* node = provenance_.find(owner);
  if (node == nullptr) return present(value);
  if (PyDict_Check(owner)) {
    record_dict_item(*node, key, value);
    return present(value);
  }
  const bool is_sequence = PyList_Check(owner) || PyTuple_Check(owner);
  if (!is_sequence || !PyLong_Check(key) || journal_.find(owner) != nullptr) {
    return examine(owner, Aspect::kContents) ? present(value) : (Py_DECREF(value), nullptr);
  }
  Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index < 0) {
    record_fact(*node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(Py_SIZE(owner))));
    index += Py_SIZE(owner);
  }
  record(*node, Accessor::kItem, nullptr, index, value);
  return present(value);
}

PyObject* Tracker::receive(PyObject* value) { return present(value); }

Treatment Tracker::treatment(PyCodeObject* code) {
  const auto [place, is_new] = treatments_.try_emplace(code, Treatment::kInterpret);
  if (is_new) codes_.push_back(py::Ref::share(reinterpret_cast<PyObject*>(code)));
  if (is_new && options_.treatment) place->second = options_.treatment(code);
  return place->second;
}

bool Tracker::is_code_constant(py::Borrowed value) const {
  return std::ranges::any_of(codes_, [&](const py::Ref& code) {
    return holds(reinterpret_cast<PyCodeObject*>(code.get())->co_consts, value);
  });
}

bool Tracker::is_given(py::Borrowed value) const {
  return is_code_constant(value) || std::ranges::any_of(given_, [&](const py::Ref& given) {
           return given.get() == value || (PyTuple_Check(given.get()) && holds(given.get(), value));
         });
}

void Tracker::record_function_part(Node& function, FunctionPart part) {
  const auto index = static_cast<Py_ssize_t>(part);
  if (provenance_.find_read(function, Accessor::kFunctionPart, nullptr, index) != nullptr) return;
  PyObject* value = *function_slot(function.object.get(), part);
  if (value != nullptr && PyTuple_Check(value)) given_.push_back(py::Ref::share(value));
  const Expectation expectation = value == nullptr ? Expectation::kAbsent : Expectation::kIdentity;
  Read read{Accessor::kFunctionPart, expectation, nullptr, index, py::Ref::share(value)};
  if (options_.locate) read.location = options_.locate();
  provenance_.add_read(function, std::move(read));
}

void Tracker::enter_function(Node& function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function.object.get());
  const auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
  if (object->func_closure != nullptr) {
    const py::Ref names = py::Ref::steal(PyCode_GetFreevars(const_cast<PyCodeObject*>(code)));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(object->func_closure); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names.get(), i));
      provenance_.constant(PyTuple_GET_ITEM(object->func_closure, i), name == nullptr ? "" : name);
    }
  }
  const auto enter = [this](PyObject* value) {
    if (classify(value, hooks_) != ConstantKind::kEquality && value != Py_None) admit_constant(value, describe(value));
  };
  record_function_part(function, FunctionPart::kCode);
  if (code->co_argcount > 0) record_function_part(function, FunctionPart::kDefaults);
  if (code->co_kwonlyargcount > 0) record_function_part(function, FunctionPart::kKeywordDefaults);
  PyObject* defaults = object->func_defaults;
  for (Py_ssize_t i = 0; defaults != nullptr && i < PyTuple_GET_SIZE(defaults); ++i)
    enter(PyTuple_GET_ITEM(defaults, i));
  PyObject *key, *value;
  Py_ssize_t position = 0;
  if (object->func_kwdefaults == nullptr) return;
  Node& keyword_defaults = provenance_.constant(object->func_kwdefaults, function.name + ".__kwdefaults__");
  while (PyDict_Next(object->func_kwdefaults, &position, &key, &value)) {
    enter(value);
    record(keyword_defaults, Accessor::kDictItem, key, 0, value);
  }
}

void Tracker::enter_hidden_parts(Node& node) {
  PyObject* object = node.object.get();
  static PyObject* const function_name = PyUnicode_InternFromString("__func__");
  static PyObject* const own_name = PyUnicode_InternFromString("__name__");
  static PyObject* const self_name = PyUnicode_InternFromString("__self__");
  static PyObject* const getter_name = PyUnicode_InternFromString("fget");
  static PyObject* const setter_name = PyUnicode_InternFromString("fset");
  static PyObject* const func_name = PyUnicode_InternFromString("func");
  static PyObject* const arguments_name = PyUnicode_InternFromString("args");
  static PyObject* const keywords_name = PyUnicode_InternFromString("keywords");
  const auto enter = [&](std::initializer_list<PyObject*> names) {
    for (PyObject* name : names) {
      const py::Ref part = py::Ref::steal(PyObject_GenericGetAttr(object, name));
      if (!part) {
        PyErr_Clear();
      } else if (node.is_constant()) {
        if (part.get() != Py_None && provenance_.find(part.get()) == nullptr) admit_constant(part.get(), node.name);
      } else {
        record(node, Accessor::kDescriptor, name, 0, part.get());
      }
    }
  };
  if (PyFunction_Check(object)) return enter_function(node);
  if (PyMethod_Check(object)) return enter({function_name, self_name});
  if (PyCFunction_Check(object) && PyCFunction_GET_SELF(object) != nullptr) {
    if (!node.is_constant()) enter({self_name, own_name});
    return;
  }
  if (PyObject* mapping = mapping_behind(object)) {
    if (!node.is_constant()) {
      record(node, Accessor::kReferent, nullptr, 0, mapping);
    } else if (provenance_.find(mapping) == nullptr) {
      admit_constant(mapping, node.name);
    }
    return;
  }
  if (options_.note_type && !is_python_class(Py_TYPE(object))) options_.note_type(Py_TYPE(object));
  if (!node.is_constant() && is_plain_value(object)) return record_state_as(node, StateKind::kValue);
  if (Py_TYPE(object) == &PyProperty_Type) return enter({getter_name, setter_name});
  if (Py_TYPE(object) == &PyStaticMethod_Type || Py_TYPE(object) == &PyClassMethod_Type) return enter({function_name});
  if (std::string_view(Py_TYPE(object)->tp_name) == "functools.partial") {
    enter({func_name, arguments_name, keywords_name});
    for (PyObject* name : {arguments_name, keywords_name}) {
      const py::Ref part = py::Ref::steal(PyObject_GenericGetAttr(object, name));
      if (part) read_deeply(part.get(), 0);
    }
    PyErr_Clear();
  }
}

}  // namespace thunder::interpreter
