#include <ranges>
#include <string_view>
#include <vector>

#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/provenance/reads.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

void Reads::record_type_attribute(PyTypeObject* type, py::Borrowed name) {
  if (is_immutable_type(type)) return;
  Node* node = shared_node(reinterpret_cast<PyObject*>(type));
  if (node == nullptr) return record_own_type_attribute(type, name);
  parts_.note_type_attribute(*node, name);
  if (state_.provenance.find_read(*node, Accessor::kTypeAttribute, name, 0) != nullptr) return;
  if (is_written_in_class(type, name)) return record_own_type_attribute(type, name);
  record(*node, Accessor::kTypeAttribute, name, 0, _PyType_Lookup(type, name));
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
    return !is_special_name(name) && Py_TYPE(value)->tp_descr_get == nullptr;
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

void Reads::enter_method(PyCodeObject* code, PyObject* self) {
  // The code in C that makes a class tells its bases before anybody else sees it.
  const bool is_new_class = PyType_Check(self) && is_spelled(code->co_name, "__init_subclass__");
  if (is_new_class && state_.provenance.find(self) == nullptr) note_made(self);
  record_special_methods(Py_TYPE(self), code);
  if (PyType_Check(self)) record_special_methods(reinterpret_cast<PyTypeObject*>(self), code);
}

void Reads::look_up(PyObject* object, const char* names) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_python_class(type) || is_immutable_type(type) || is_real_tensor(object, state_.hooks) ||
      state_.hooks.is_traced(object)) {
    return;
  }
  if (!looked_up_.emplace(type, names).second) return;
  for (const auto name : std::views::split(std::string_view(names), ' ')) {
    const py::Ref key = py::Ref::steal(PyUnicode_FromStringAndSize(&*name.begin(), std::ranges::ssize(name)));
    record_type_attribute(type, key.get());
  }
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
}

bool Reads::is_written_in_class(PyTypeObject* type, py::Borrowed name) const {
  if (state_.journal.empty()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    if (state_.journal.find_slot(PyTuple_GET_ITEM(type->tp_mro, i), name) != nullptr) return true;
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
  PyObject* order = reinterpret_cast<PyTypeObject*>(last.get())->tp_mro;
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
