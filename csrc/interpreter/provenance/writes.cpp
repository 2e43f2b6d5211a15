#include "interpreter/provenance/writes.h"

#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

Py_ssize_t list_index(py::Borrowed list, py::Borrowed key) {
  if (!PyLong_Check(key)) return -1;
  const Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  return index < 0 ? index + Py_SIZE(list) : index;
}

}  // namespace

// Guards that an item is there if it is to be deleted.
bool Writes::write_dict_item(Node& dict, py::Borrowed key, bool removes) {
  PyObject* object = dict.object.get();
  if (removes) reads_.record_dict_item(dict, key, PyDict_GetItemWithError(object, key));
  return PyErr_Occurred() == nullptr && state_.journal.before_dict_item(object, key, removes);
}

bool Writes::write_attribute(py::Borrowed owner, py::Borrowed name, bool removes) {
  if (state_.hooks.is_traced(owner)) {
    const py::Ref real = py::Ref::steal(state_.hooks.original(owner));
    if (!real || _PyType_Lookup(Py_TYPE(owner), name) != nullptr) {
      return state_.hooks.may_set_state(owner, name) && tensors_.load_tensor_state(owner, name);
    }
    PyErr_Format(PyExc_NotImplementedError,
                 "thunder.jit: sets the attribute %R of a tensor from outside of the function; set it after the call",
                 static_cast<PyObject*>(name));
    return false;
  }
  Node* node = PyType_Check(owner) ? reads_.shared_node(owner) : state_.provenance.find(owner);
  if (node == nullptr) return true;
  if (PyType_Check(owner)) {
    auto* type = reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(owner));
    return is_immutable_type(type) || state_.journal.before_slot(owner, name);
  }
  if (PyCell_Check(static_cast<PyObject*>(owner))) return state_.journal.before_cell(owner);
  if (is_spelled(name, "__dict__")) {
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: replaces the __dict__ of an object of type '%.200s' from outside of the function; set its "
        "attributes",
        Py_TYPE(owner)->tp_name);
    return false;
  }
  reads_.record_type_attribute(Py_TYPE(owner), name);
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr) {
    // A property's setter is Python: its own writes are seen.
    if (is_read_only(descriptor)) return true;
    const bool is_slot = Py_TYPE(descriptor) == &PyMemberDescr_Type || Py_TYPE(descriptor) == &PyGetSetDescr_Type;
    if (is_slot && removes) {
      const py::Ref value = py::Ref::steal(state_.hooks.attribute(owner, name));
      PyErr_Clear();
      reads_.record_descriptor(owner, name, value.get());
    }
    if (is_slot) return state_.journal.before_slot(owner, name);
    // Others in C (fields of `ctypes`) keep what is set where nobody sees it.
    return is_python_class(Py_TYPE(descriptor)) || Py_TYPE(descriptor) == &PyProperty_Type || write_contents(owner);
  }
  Node* dict = reads_.instance_dict_node(*node);
  return dict == nullptr ? write_contents(owner) : write_dict_item(*dict, name, removes);
}

bool Writes::write_item(Node& node, py::Borrowed key, bool removes) {
  PyObject* owner = node.object.get();
  if (PyDict_Check(owner)) return write_dict_item(node, key, removes);
  const Record* written = state_.journal.find(owner);
  const Py_ssize_t index = PyList_Check(owner) && !removes ? list_index(owner, key) : -1;
  if (index < 0 || index >= Py_SIZE(owner) || (written != nullptr && written->appended)) return write_contents(owner);
  reads_.record_length(node, Py_SIZE(owner));
  return state_.journal.before_list_item(owner, index);
}

bool Writes::write_contents(py::Borrowed owner) {
  Node* node = state_.provenance.find(owner);
  if (node == nullptr) return true;
  const Record* written = state_.journal.find(owner);
  const bool is_first = PyList_CheckExact(static_cast<PyObject*>(owner)) && (written == nullptr || !written->rewritten);
  if (state_.journal.before_contents(owner)) return !is_first || reads_.show_items(*node);
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

bool Writes::before(PyObject* owner, WriteKind kind, PyObject* key) {
  if (!state_.memos.may_write(owner)) return false;
  switch (kind) {
    case WriteKind::kAttribute:
    case WriteKind::kDeleteAttribute:
      return write_attribute(owner, key, kind == WriteKind::kDeleteAttribute);
    case WriteKind::kGlobal:
    case WriteKind::kDeleteGlobal: {
      Node* node = reads_.shared_node(owner);
      return node == nullptr || write_dict_item(*node, key, kind == WriteKind::kDeleteGlobal);
    }
    case WriteKind::kCell:
      return state_.provenance.find(owner) == nullptr || state_.journal.before_cell(owner);
    case WriteKind::kItem:
    case WriteKind::kDeleteItem: {
      Node* node = state_.provenance.find(owner);
      return node == nullptr || write_item(*node, key, kind == WriteKind::kDeleteItem);
    }
    case WriteKind::kContents:
      return write_contents(owner);
  }
  return true;
}

}  // namespace thunder::interpreter
