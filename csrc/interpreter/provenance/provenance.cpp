#include "interpreter/provenance/provenance.h"

#include <algorithm>
#include <array>
#include <utility>

#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

std::size_t Provenance::ReadKeyHash::operator()(const ReadKey& key) const {
  const auto owner = reinterpret_cast<std::uintptr_t>(key.owner);
  const auto name = reinterpret_cast<std::uintptr_t>(key.key);
  std::size_t hash = (owner >> 4) * 0x9E3779B97F4A7C15ULL;
  hash ^= (name >> 4) * 0xC2B2AE3D27D4EB4FULL;
  return (hash ^ (hash >> 29)) + static_cast<std::size_t>(key.index) * 31 + static_cast<std::size_t>(key.accessor);
}

Node& Provenance::constant(py::Borrowed object, const std::string& name) {
  if (Node* known = find(object)) return *known;
  Node& node = add(object, nullptr, Accessor::kConstant, nullptr, 0);
  node.name = name;
  return node;
}

Node& Provenance::add(py::Borrowed object, Node* parent, Accessor accessor, py::Borrowed key, Py_ssize_t index) {
  Node& node = nodes_.emplace_back();
  node.object = py::Ref::share(object);
  node.parent = parent;
  node.accessor = accessor;
  node.key = py::Ref::share(key);
  node.index = index;
  node.id = static_cast<std::uint32_t>(nodes_.size());
  nodes_by_object_.emplace(object, &node);
  return node;
}

void Provenance::show_as(Node& tuple, py::Ref seen) {
  tuples_by_seen_.emplace(seen.get(), &tuple);
  tuple.seen = std::move(seen);
}

Read* Provenance::find_read(const Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index) const {
  const auto found = reads_by_key_.find({&owner, accessor, key, index});
  return found == reads_by_key_.end() ? nullptr : found->second;
}

Read& Provenance::add_read(Node& owner, Read read) {
  const ReadKey key{&owner, read.accessor, read.key.get(), read.index};
  Read& stored = owner.reads.emplace_back(std::move(read));
  reads_by_key_.emplace(key, &stored);
  return stored;
}

namespace {

std::string text_of(py::Borrowed string) {
  if (string == nullptr || !PyUnicode_Check(string)) return "?";
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(string, &size);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? "?" : std::string(text, static_cast<std::size_t>(size));
}

std::string describe_type(const PyTypeObject* type) { return std::string("an object of type ") + type->tp_name; }

std::string spell_node(const Node& node, int depth);

/// A key of a dict; one that is told by its type alone is numbered among those of its type.
std::string spell_key(py::Borrowed dict, py::Borrowed key) {
  constexpr std::size_t kMost = 1000;
  std::string text = describe(key);
  if (!PyDict_Check(dict) || text != describe_type(Py_TYPE(key))) return text;
  std::size_t number = 1;
  PyObject* other = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &other, nullptr) != 0 && other != key;) {
    if (Py_TYPE(other) == Py_TYPE(key) && ++number > kMost) return text;
  }
  return number == 1 ? text : text + ", number " + std::to_string(number);
}

std::string spell_dict_item(const Node& dict, py::Borrowed key, int depth) {
  if (dict.accessor == Accessor::kInstanceDict) {
    const Node* owner = dict.parent;
    const std::string name = text_of(key);
    if (owner == nullptr) return name;
    const std::string prefix = spell_node(*owner, depth + 1);
    // A module keeps its parameters, buffers and children in dicts of its own; people write `module.name`.
    return prefix + "." + name;
  }
  if (dict.is_constant() && dict.name.empty()) return text_of(key);  // a global
  if (dict.accessor == Accessor::kDictItem && dict.parent->accessor == Accessor::kInstanceDict) {
    const std::string table = text_of(dict.key.get());
    if (table == "_parameters" || table == "_buffers" || table == "_modules") {
      const std::string name = text_of(key);
      const std::string owner = dict.parent->parent == nullptr ? std::string{} : expression(*dict.parent->parent);
      const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
      return is_number ? owner + "[" + name + "]" : owner + "." + name;
    }
  }
  // The key is another one for each registration, and the way to the hook the same.
  if (is_table_of_hooks(dict) && PyLong_CheckExact(static_cast<PyObject*>(key))) {
    const py::Ref keys = keys_of(dict.object.get());
    const Py_ssize_t place = keys ? PySequence_Index(keys.get(), key) : -1;
    PyErr_Clear();
    if (place >= 0) return "list(" + spell_node(dict, depth + 1) + ".values())[" + std::to_string(place) + "]";
  }
  return spell_node(dict, depth + 1) + "[" + spell_key(dict.object.get(), key) + "]";
}

std::string spell_step(const Node& owner, Accessor accessor, py::Borrowed key, Py_ssize_t index, int depth) {
  switch (accessor) {
    case Accessor::kConstant:
    case Accessor::kArgument:
      return key != nullptr ? text_of(key) : "args[" + std::to_string(index) + "]";
    case Accessor::kKeyword:
      return text_of(key);
    case Accessor::kInstanceDict:
      return spell_node(owner, depth + 1) + ".__dict__";
    case Accessor::kDictItem:
      return spell_dict_item(owner, key, depth);
    case Accessor::kTypeAttribute:
    case Accessor::kDescriptor:
      return spell_node(owner, depth + 1) + "." + text_of(key);
    case Accessor::kItem:
      return spell_node(owner, depth + 1) + "[" + std::to_string(index) + "]";
    case Accessor::kCell:
      if (!owner.name.empty()) return owner.name;
      return owner.is_constant() ? "<closure variable>" : spell_node(owner, depth + 1) + ".cell_contents";
    case Accessor::kFunctionPart: {
      static constexpr std::array kNames{".__code__",    ".__defaults__", ".__kwdefaults__",
                                         ".__closure__", ".__globals__",  ".__builtins__"};
      return spell_node(owner, depth + 1) + kNames[static_cast<std::size_t>(index)];
    }
    case Accessor::kReferent:
      return spell_node(owner, depth + 1) + (PyWeakref_Check(owner.object.get()) ? "()" : ".get()");
    case Accessor::kCall:
      return spell_node(owner, depth + 1) + "()";
    case Accessor::kConversion: {
      const py::Ref name = py::Ref::steal(PyObject_GetAttrString(key, "__name__"));
      if (!name) PyErr_Clear();
      return (name ? text_of(name.get()) : "convert") + "(" + spell_node(owner, depth + 1) + ")";
    }
    case Accessor::kState:
      return spell_node(owner, depth + 1);
    case Accessor::kOther:
      return spell_node(owner, depth + 1) + " is …";
    case Accessor::kPresence:
    case Accessor::kContains:
      return describe(key) + " in " + spell_node(owner, depth + 1);
    case Accessor::kLength:
      return "len(" + spell_node(owner, depth + 1) + ")";
    case Accessor::kTruth:
      return "bool(" + spell_node(owner, depth + 1) + ")";
    case Accessor::kKeys:
    case Accessor::kMembers:
      return "list(" + spell_node(owner, depth + 1) + ")";
  }
  return {};
}

/// The way to an object. Where it is long, as in linked lists, a number stands for its beginning: no two ways of a
/// trace read the same.
std::string spell_node(const Node& node, int depth) {
  constexpr int kDeepest = 128;
  if (!node.name.empty()) return node.name;
  if (node.is_constant()) {
    if (PyType_Check(node.object.get())) return reinterpret_cast<PyTypeObject*>(node.object.get())->tp_name;
    return describe(node.object.get());
  }
  if (depth > kDeepest) return "…" + std::to_string(node.id);
  return spell_step(*node.parent, node.accessor, node.key.get(), node.index, depth);
}

}  // namespace

namespace {

std::string describe_within(py::Borrowed object, int depth);

std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 200;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

std::string describe_items(const char* open, py::Borrowed container, const char* close, int depth) {
  const py::Ref items = items_of(container);
  if (!items) {
    PyErr_Clear();
    return describe_type(Py_TYPE(container));
  }
  constexpr Py_ssize_t kMost = 70;  // more are cut off
  std::string text = open;
  for (Py_ssize_t i = 0; i < std::min(PyList_GET_SIZE(items.get()), kMost); ++i) {
    if (i > 0) text += ", ";
    text += describe_within(PyList_GET_ITEM(items.get(), i), depth + 1);
  }
  return text + close;
}

std::string describe_pairs(py::Borrowed dict, int depth) {
  std::string text = "{";
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value) != 0;) {
    if (text.size() > 1) text += ", ";
    text += describe_within(key, depth + 1) + ": " + describe_within(value, depth + 1);
  }
  return text + "}";
}

/// Whether `repr` of an object runs code of its type alone: it is no container, and its type was written in C.
bool has_repr_in_c(py::Borrowed object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyCFunction_Check(object) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) return true;
  return !is_python_class(type) && !PyType_IS_GC(type);
}

std::string describe_within(py::Borrowed object, int depth) {
  constexpr int kDeepest = 4;
  if (object == nullptr) return "nothing";
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  if (PyFunction_Check(object)) return text_of(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    if (name == nullptr) PyErr_Clear();
    return std::string("<module '") + (name == nullptr ? "?" : name) + "'>";
  }
  if (depth > kDeepest) return "…";
  if (PyTuple_CheckExact(object)) return describe_items("(", object, PyTuple_GET_SIZE(object) == 1 ? ",)" : ")", depth);
  if (PyList_CheckExact(object)) return describe_items("[", object, "]", depth);
  if (PyDict_CheckExact(object)) return describe_pairs(object, depth);
  if (PyAnySet_CheckExact(object) && PySet_GET_SIZE(object) > 0) {
    const bool is_set = PySet_CheckExact(object);
    return describe_items(is_set ? "{" : "frozenset({", object, is_set ? "}" : "})", depth);
  }
  if (PyTuple_Check(object) && !is_python_class(type)) {
    return describe_items((std::string(type->tp_name) + "([").c_str(), object, "])", depth);
  }
  if (!has_repr_in_c(object)) return describe_type(type);
  const py::Ref text = py::Ref::steal(PyObject_Repr(object));
  if (text) return text_of(text.get());
  PyErr_Clear();
  return describe_type(type);
}

}  // namespace

bool is_table_of_hooks(const Node& node) {
  if (node.accessor != Accessor::kDictItem || !PyUnicode_CheckExact(node.key.get())) return false;
  PyObject* object = node.object.get();
  if (!PyDict_CheckExact(object) && !PyODict_CheckExact(object)) return false;
  const char* name = PyUnicode_AsUTF8(node.key.get());
  if (name == nullptr) PyErr_Clear();
  return name != nullptr && name[0] == '_' && std::string_view(name).find("_hooks") != std::string_view::npos;
}

std::string expression(const Node& node) { return spell_node(node, 0); }

std::string expression(const Node& owner, const Read& read) {
  if (read.accessor == Accessor::kOther) return expression(owner) + " is " + expression(*read.part);
  return spell_step(owner, read.accessor, read.key.get(), read.index, 0);
}

std::string describe(py::Borrowed object) { return shortened(describe_within(object, 0)); }

}  // namespace thunder::interpreter
