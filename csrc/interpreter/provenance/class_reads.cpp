#include <algorithm>
#include <ranges>
#include <string_view>
#include <vector>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/provenance/reads.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

const Read* Reads::record_type_attribute(PyTypeObject* type, py::Borrowed name, Audience audience) {
  if (is_immutable_type(type)) return nullptr;
  Node* node = shared_node(reinterpret_cast<PyObject*>(type));
  if (node != nullptr) parts_.note_type_attribute(*node, name);
  if (node != nullptr && !is_written_in_class(type, name)) {
    return record(*node, Accessor::kTypeAttribute, name, 0, _PyType_Lookup(type, name), audience);
  }
  const bool is_known =
      node != nullptr && state_.provenance.find_read(*node, Accessor::kTypeAttribute, name, 0) != nullptr;
  if (!is_known) record_own_type_attribute(type, name);
  return nullptr;
}

void Reads::note_class(py::Borrowed object) {
  if (is_immutable_type(Py_TYPE(object)) && !PyModule_Check(object)) return;
  Node* node = PyType_Check(object) ? shared_node(object) : state_.provenance.find(object);
  if (node != nullptr) node->class_is_read = true;
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

void Reads::record_entries(PyTypeObject* type, bool (*is_recorded)(PyObject* name, PyObject* value)) {
  if (is_immutable_type(type)) return;
  std::vector<py::Ref> names;
  for_each_entry(type, [&](PyTypeObject*, PyObject* name, PyObject* value) {
    if (is_recorded(name, value)) names.push_back(py::Ref::share(name));
  });
  for (const py::Ref& name : names) record_type_attribute(type, name.get());
}

// Methods of a class that C may look up and call, as `torch.autograd.Function.apply` does with `forward`.
void Reads::record_methods(PyTypeObject* type) {
  record_entries(type, [](PyObject*, PyObject* value) {
    return PyFunction_Check(value) || Py_TYPE(value) == &PyStaticMethod_Type || Py_TYPE(value) == &PyClassMethod_Type;
  });
}

void Reads::record_class_attributes(PyTypeObject* type) {
  record_entries(type, [](PyObject* name, PyObject* value) {
    const bool is_method =
        PyFunction_Check(value) || Py_TYPE(value) == &PyStaticMethod_Type || Py_TYPE(value) == &PyClassMethod_Type;
    return !is_special_name(name) && !is_method;
  });
}

void Reads::record_special_methods(PyTypeObject* type, const PyCodeObject* code) {
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

void Reads::enter_method(PyCodeObject* code, PyObject* const* arguments, std::size_t count) {
  PyObject* self = arguments[0];
  // The code in C that makes a class shows it to its bases and descriptors before anybody else sees it.
  PyObject* made = is_spelled(code->co_name, "__init_subclass__")           ? self
                   : count > 1 && is_spelled(code->co_name, "__set_name__") ? arguments[1]
                                                                            : nullptr;
  if (made != nullptr && PyType_Check(made) && state_.provenance.find(made) == nullptr) note_made(made);
  record_special_methods(Py_TYPE(self), code);
  if (PyType_Check(self)) record_special_methods(reinterpret_cast<PyTypeObject*>(self), code);
}

namespace {

/// Calls `visit(name)`, which returns whether to go on, for names that are separated by spaces.
template <typename Visit>
bool for_each_name(const char* names, Visit&& visit) {
  for (const auto name : std::views::split(std::string_view(names), ' ')) {
    const py::Ref key = py::Ref::steal(PyUnicode_FromStringAndSize(&*name.begin(), std::ranges::ssize(name)));
    if (!key || !visit(key.get())) return false;
  }
  return true;
}

/// Whether a special method from C by another name is called so that what it does is seen: see `interpreted_alias`.
bool is_alias_followed(PyObject* name) {
  return is_spelled(name, "__call__") || is_spelled(name, "__setattr__") || is_spelled(name, "__delattr__");
}

}  // namespace

bool Reads::may_define_methods(PyObject* object) const {
  PyTypeObject* type = Py_TYPE(object);
  return is_python_class(type) && !is_immutable_type(type) && !is_real_tensor(object, state_.hooks) &&
         !state_.hooks.is_traced(object);
}

bool Reads::is_of_own_class(PyObject* tensor) const {
  PyTypeObject* type = Py_TYPE(tensor);
  return is_python_class(type) && !is_immutable_type(type) && !state_.hooks.stands_for_number(tensor) &&
         (is_real_tensor(tensor, state_.hooks) || state_.hooks.is_traced(tensor)) && !state_.hooks.is_plain_class(type);
}

bool Reads::record_look_up(PyObject* object, const char* names) {
  if (!may_define_methods(object) && !is_of_own_class(object)) return false;
  PyTypeObject* type = Py_TYPE(object);
  note_class(object);
  if (!looked_up_.emplace(type, names).second) return false;
  return for_each_name(names, [&](PyObject* name) { return record_type_attribute(type, name), true; });
}

bool Reads::refuse_aliases(PyObject* object, const char* names) {
  if (!may_define_methods(object)) return true;
  return for_each_name(names, [&](PyObject* name) {
    if (is_alias_followed(name) || !is_alias(object, name)) return true;
    PyErr_Format(PyExc_NotImplementedError,
                 "thunder.jit: the method %U of the class '%.200s' is a function in C, whose reads and writes are not "
                 "seen; call it by a function in Python",
                 name, Py_TYPE(object)->tp_name);
    return false;
  });
}

bool Reads::has_observed(PyObject* object, const char* names) const {
  const auto is_observed = [&](PyObject* name) {
    PyObject* method = _PyType_Lookup(Py_TYPE(object), name);
    if (method == nullptr || method == Py_None || method == _PyType_Lookup(&PyBaseObject_Type, name)) return true;
    if (!PyFunction_Check(method) || !state_.options.treatment) return false;
    const Treatment treatment = state_.options.treatment(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(method)));
    return treatment == Treatment::kInterpret || treatment == Treatment::kLibrary;
  };
  return may_define_methods(object) && for_each_name(names, is_observed);
}

bool Reads::look_up(PyObject* object, const char* names) {
  if (!record_look_up(object, names)) return PyErr_Occurred() == nullptr;
  if (refuse_aliases(object, names)) return true;
  looked_up_.erase({Py_TYPE(object), names});
  return false;
}

namespace {

/// Whether a class is what its module has under its name.
bool is_in_its_module(PyTypeObject* type) {
  PyObject* module_name = PyDict_GetItemString(dict_of_type(type), "__module__");
  PyObject* module = module_name == nullptr ? nullptr : PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
  PyObject* found = module != nullptr && PyModule_Check(module) ? module : nullptr;
  const char* path = PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
  for (const auto part : std::views::split(std::string_view(path), '.')) {
    PyObject* names = found == nullptr        ? nullptr
                      : PyModule_Check(found) ? PyModule_GetDict(found)
                      : PyType_Check(found)   ? dict_of_type(reinterpret_cast<PyTypeObject*>(found))
                                              : nullptr;
    const py::Ref name = py::Ref::steal(PyUnicode_FromStringAndSize(part.data(), std::ranges::ssize(part)));
    found = names == nullptr ? nullptr : PyDict_GetItemWithError(names, name.get());
  }
  return found == reinterpret_cast<PyObject*>(type);
}

/// Whether a value that was read is this class, or a tuple that holds it.
bool shows(PyObject* value, PyObject* type) {
  if (value == nullptr || value == type) return value == type;
  if (!PyTuple_Check(value)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
    if (shows(PyTuple_GET_ITEM(value, i), type)) return true;
  }
  return false;
}

}  // namespace

// A class from outside is found by its name, or the program has read it, or an object of it.
bool Reads::may_be_made(PyTypeObject* type) const {
  auto* object = reinterpret_cast<PyObject*>(type);
  if (is_made(object)) return true;
  if (!is_python_class(type) || is_immutable_type(type) || is_in_its_module(type)) return false;
  for (const Node& node : state_.provenance.nodes()) {
    if (node.object.get() == object) continue;
    const bool is_own_member = node.is_constant() && is_enumeration_member(Py_TYPE(node.object.get()));
    if (!is_own_member && PyType_IsSubtype(Py_TYPE(node.object.get()), type) != 0) return false;
    for (const Read& read : node.reads) {
      if (shows(read.value.get(), object)) return false;
    }
  }
  return std::ranges::none_of(state_.provenance.call().reads,
                              [&](const Read& read) { return shows(read.value.get(), object); });
}

void Reads::construct(PyTypeObject* type) {
  static PyObject* const make = PyUnicode_InternFromString("__new__");
  static PyObject* const init = PyUnicode_InternFromString("__init__");
  static PyObject* const call = PyUnicode_InternFromString("__call__");
  if (state_.options.note_type && !is_python_class(type)) state_.options.note_type(type);
  if (!is_python_class(type)) return;
  record_type_attribute(type, make);
  record_type_attribute(type, init);
  record_type_attribute(Py_TYPE(type), call);
  note_class(reinterpret_cast<PyObject*>(type));
}

bool Reads::is_written_in_class(PyTypeObject* type, py::Borrowed name) const {
  if (state_.journal.empty()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    if (state_.journal.find_slot(base, name) != nullptr) return true;
    if (PyDict_Contains(dict_of_type(reinterpret_cast<PyTypeObject*>(base)), name) == 1) return false;
  }
  return false;
}

// An attribute that the program wrote into a class, or that lies in a class which the program made, is not from
// outside, but the fact that no nearer class had it is.
void Reads::record_own_type_attribute(PyTypeObject* type, py::Borrowed name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* object = PyTuple_GET_ITEM(type->tp_mro, i);
    auto* base = reinterpret_cast<PyTypeObject*>(object);
    Node* node = is_immutable_type(base) ? nullptr : shared_node(object);
    if (node != nullptr && state_.journal.find_slot(object, name) == nullptr) {
      record(*node, Accessor::kTypeAttribute, name, 0, original_type_attribute(base, name));
    }
    if (PyDict_Contains(dict_of_type(base), name) == 1) return;
  }
}

PyObject* Reads::original_type_attribute(PyTypeObject* type, py::Borrowed name) const {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    const Record* written = state_.journal.find_slot(base, name);
    PyObject* value = written != nullptr ? written->before.get()
                                         : PyDict_GetItem(dict_of_type(reinterpret_cast<PyTypeObject*>(base)), name);
    if (value != nullptr) return value;
  }
  return nullptr;
}

void Reads::record_super_attribute(py::Borrowed super, py::Borrowed name) {
  const py::Ref first = py::Ref::steal(PyObject_GetAttrString(super, "__thisclass__"));
  const py::Ref last = py::Ref::steal(PyObject_GetAttrString(super, "__self_class__"));
  PyErr_Clear();
  if (!first || !last || !PyType_Check(last.get())) return;
  static PyObject* const mro = PyUnicode_InternFromString("__mro__");
  PyObject* order = reinterpret_cast<PyTypeObject*>(last.get())->tp_mro;
  record_descriptor(last.get(), mro, order);  // it changes with `__bases__`
  bool behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    PyObject* base = PyTuple_GET_ITEM(order, i);
    if (behind) {
      // Also where a class does not have it: it comes before those that do.
      record_type_attribute(reinterpret_cast<PyTypeObject*>(base), name);
      if (PyDict_Contains(dict_of_type(reinterpret_cast<PyTypeObject*>(base)), name) == 1) return;
    }
    behind = behind || base == first.get();
  }
}

}  // namespace thunder::interpreter
