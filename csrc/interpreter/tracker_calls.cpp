#include <string_view>
#include <vector>

#include "interpreter/provenance_constant.h"
#include "interpreter/tracker.h"

namespace thunder::interpreter {
namespace {

Py_ssize_t list_index(py::Borrowed list, py::Borrowed key) {
  if (!PyLong_Check(key)) return -1;
  const Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  return index < 0 ? index + Py_SIZE(list) : index;
}

std::size_t count_with_keywords(std::size_t count, py::Borrowed names) {
  return count + (names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names)));
}

}  // namespace

bool Tracker::write_attribute(py::Borrowed owner, py::Borrowed name) {
  Node* node = PyType_Check(owner) ? &provenance_.constant(owner) : provenance_.find(owner);
  if (node == nullptr) return true;
  if (PyType_Check(owner)) return journal_.before_slot(owner, name);
  record_type_attribute(Py_TYPE(owner), name);
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    // A property's setter is Python: its own writes are seen.
    const bool is_slot = Py_TYPE(descriptor) == &PyMemberDescr_Type || Py_TYPE(descriptor) == &PyGetSetDescr_Type;
    return !is_slot || journal_.before_slot(owner, name);
  }
  Node* dict = instance_dict_node(*node);
  return dict == nullptr || journal_.before_dict_item(dict->object.get(), name);
}

bool Tracker::before_write(PyObject* owner, WriteKind kind, PyObject* key) {
  switch (kind) {
    case WriteKind::kAttribute:
      return write_attribute(owner, key);
    case WriteKind::kGlobal:
      provenance_.constant(owner);
      return journal_.before_dict_item(owner, key);
    case WriteKind::kCell:
      return provenance_.find(owner) == nullptr || journal_.before_cell(owner);
    case WriteKind::kItem: {
      Node* node = provenance_.find(owner);
      if (node == nullptr) return true;
      if (PyDict_Check(owner)) return journal_.before_dict_item(owner, key);
      const Py_ssize_t index = PyList_Check(owner) ? list_index(owner, key) : -1;
      if (index < 0 || index >= Py_SIZE(owner)) break;
      record_fact(*node, Accessor::kLength, py::Ref::steal(PyLong_FromSsize_t(Py_SIZE(owner))));
      return journal_.before_list_item(owner, index);
    }
    case WriteKind::kContents:
      break;
  }
  if (provenance_.find(owner) == nullptr || journal_.before_contents(owner)) return true;
  if (PyErr_Occurred() == nullptr && std::string_view(Py_TYPE(owner)->tp_name) == "collections.deque") {
    PyErr_SetString(
        PyExc_NotImplementedError,
        "thunder.jit: expected writes to lists, dicts, sets and objects, got one to a collections.deque from "
        "outside of the function; use a list");
  }
  return PyErr_Occurred() == nullptr;
}

bool Tracker::apply_effect(const NativeCall& call, NativeEffect effect) {
  PyObject* self = call.self;
  PyObject* key = call.count > 0 ? call.arguments[0] : nullptr;
  Node* node = self == nullptr ? nullptr : provenance_.find(self);
  switch (effect) {
    case NativeEffect::kOpaque:
    case NativeEffect::kNothing:
      return true;
    case NativeEffect::kContents:
      for (std::size_t i = 0; i < call.count; ++i) {
        if (!examine(call.arguments[i], Aspect::kContents)) return false;
      }
      return true;
    case NativeEffect::kLength:
      return examine(self != nullptr ? self : key, Aspect::kLength);
    case NativeEffect::kSetAttribute: {
      PyObject* name = self == nullptr ? (call.count > 1 ? call.arguments[1] : nullptr) : key;
      PyObject* owner = self == nullptr ? key : self;
      return name == nullptr || !PyUnicode_Check(name) || write_attribute(owner, name);
    }
    case NativeEffect::kGetItem:
    case NativeEffect::kTakeItem:
    case NativeEffect::kSetItem:
    case NativeEffect::kGetKeys:
    case NativeEffect::kGetContents:
    case NativeEffect::kAppend:
    case NativeEffect::kChange:
      break;
  }
  if (node == nullptr) return true;
  if (effect == NativeEffect::kGetKeys) return examine(self, Aspect::kKeys);
  if (effect == NativeEffect::kGetContents) return examine(self, Aspect::kContents);
  if (effect == NativeEffect::kAppend) {
    return journal_.before_append(self) && (key == nullptr || examine(key, Aspect::kContents));
  }
  if (effect == NativeEffect::kChange || key == nullptr) return before_write(self, WriteKind::kContents, nullptr);
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
  return effect == NativeEffect::kGetItem || before_write(self, WriteKind::kItem, key);
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
  *result = PyObject_Vectorcall(callable, replaced.data() + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  return *result == nullptr ? -1 : 1;
}

int Tracker::before_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                                PyObject** result) {
  if (const auto found = options_.substitutes.find(callable); found != options_.substitutes.end()) {
    return found->second(arguments, count, names, result);
  }
  if (PyObject* inner = options_.unwrap ? options_.unwrap(callable) : nullptr) {
    *result = PyObject_Vectorcall(inner, arguments, count, names);
    return *result == nullptr ? -1 : 1;
  }
  const NativeCall call = native_call(callable, arguments, count);
  const NativeEffect effect = effect_of(call);
  if (effect != NativeEffect::kOpaque) return apply_effect(call, effect) ? 0 : -1;
  bool has_real_tensors = false;
  for (std::size_t i = 0; i < count_with_keywords(count, names); ++i) has_real_tensors |= read_deeply(arguments[i], 0);
  if (PyErr_Occurred() != nullptr) return -1;
  if (call.self != nullptr && call.arguments == arguments) read_deeply(call.self, 0);
  return has_real_tensors ? call_with_stand_ins(callable, arguments, count, names, result) : 0;
}

PyObject* Tracker::after_native_call(PyObject*, PyObject* const*, std::size_t, PyObject*, PyObject* value) {
  return present(value);
}

int Tracker::before_python_call(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                                PyObject** result) {
  if (function == nullptr) return 0;
  if (const auto found = options_.substitutes.find(function); found != options_.substitutes.end()) {
    return found->second(arguments, count, names, result);
  }
  for (std::size_t i = 0; i < count_with_keywords(count, names); ++i) {
    if (is_real_tensor(arguments[i])) return call_with_stand_ins(function, arguments, count, names, result);
  }
  return 0;
}

}  // namespace thunder::interpreter
