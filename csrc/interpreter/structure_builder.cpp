#include "interpreter/structure_builder.h"

#include <structmember.h>

#include <utility>

#include "interpreter/provenance_constant.h"

namespace thunder::interpreter {
namespace {

// Of classes made by class statements; getters and slots of C classes are their own business.
template <typename Visit>
void for_each_slot(PyTypeObject* type, Visit&& visit) {
  PyObject* order = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
    if ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) continue;
    PyObject *name, *descriptor;
    Py_ssize_t position = 0;
    while (PyDict_Next(base->tp_dict, &position, &name, &descriptor)) {
      if (Py_TYPE(descriptor) != &PyMemberDescr_Type) continue;
      if (reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->type == T_OBJECT_EX) visit(name);
    }
  }
}

PartKind base_container(py::Borrowed value) {
  if (PyTuple_Check(value)) return PartKind::kTuple;
  if (PyList_Check(value)) return PartKind::kList;
  if (PyDict_Check(value)) return PartKind::kDict;
  if (PyFrozenSet_Check(value)) return PartKind::kFrozenSet;
  return PySet_Check(value) ? PartKind::kSet : PartKind::kConstant;
}

// A class whose instances consist of a container of Python's own, attributes and slots, and nothing that only C sees.
bool is_plain_class(PyTypeObject* type) {
  while ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) type = type->tp_base;
  return type == &PyBaseObject_Type || type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type ||
         type == &PyODict_Type || type == &PySet_Type || type == &PyFrozenSet_Type;
}

// A named tuple written in C, such as `torch.return_types.max`: its constructor takes the items, as tuple's does.
bool is_struct_sequence(PyTypeObject* type) {
  if (type->tp_base != &PyTuple_Type || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return false;
  PyObject* visible = PyDict_GetItemString(type->tp_dict, "n_sequence_fields");
  PyObject* all = PyDict_GetItemString(type->tp_dict, "n_fields");
  return visible != nullptr && all != nullptr && PyObject_RichCompareBool(visible, all, Py_EQ) == 1;
}

void refuse(py::Borrowed value) {
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: expected tensors, numbers, containers and plain objects in what the function returns or "
               "stores, got an object of type '%.200s' made inside of it; return its parts instead",
               Py_TYPE(value)->tp_name);
}

}  // namespace

std::uint32_t StructureBuilder::add_leaf(PartKind kind, std::uint32_t index, py::Borrowed object) {
  structure_.parts_.push_back(StructurePart{kind, index, py::Ref::share(object), {}, PartKind::kConstant, {}, {}});
  return static_cast<std::uint32_t>(structure_.parts_.size() - 1);
}

std::uint32_t StructureBuilder::add_external(const Node& node) {
  if (node.is_constant()) return add_leaf(PartKind::kConstant, 0, node.object.get());
  const_cast<Node&>(node).needed = true;
  structure_.externals_.push_back(node.id);
  return add_leaf(PartKind::kExternal, static_cast<std::uint32_t>(structure_.externals_.size() - 1), nullptr);
}

std::uint32_t StructureBuilder::add_tensor(py::Borrowed traced) {
  const py::Ref original = py::Ref::steal(tracker_.hooks().original(traced));
  if (original) {
    return add_leaf(PartKind::kInput, static_cast<std::uint32_t>(tracker_.hooks().input_index(original.get())),
                    nullptr);
  }
  if (PyErr_Occurred() != nullptr) return kFailed;
  outputs_.push_back(py::Ref::share(traced));
  return add_leaf(PartKind::kOutput, static_cast<std::uint32_t>(outputs_.size() - 1), nullptr);
}

// Whether one and the same object may serve all calls.
bool StructureBuilder::is_shareable(py::Borrowed value) {
  if (!PyFunction_Check(value)) {
    return classify(value, tracker_.hooks()) != ConstantKind::kUnknown || !PyObject_IS_GC(value);
  }
  PyObject* closure = PyFunction_GET_CLOSURE(value);
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    PyObject* contents = PyCell_GET(PyTuple_GET_ITEM(closure, i));
    if (contents != nullptr && tracker_.hooks().is_traced(contents)) return false;
  }
  return true;
}

std::uint32_t StructureBuilder::add(py::Borrowed value) {
  if (const auto known = parts_by_object_.find(value); known != parts_by_object_.end()) return known->second;
  kept_.push_back(py::Ref::share(value));
  std::uint32_t index = kFailed;
  const Node* node = tracker_.provenance().find(value);
  if (tracker_.hooks().is_traced(value)) {
    index = add_tensor(value);
  } else if (tracker_.hooks().is_real_tensor(value)) {
    const py::Ref traced = py::Ref::steal(tracker_.receive(Py_NewRef(value)));
    index = traced ? add_tensor(traced.get()) : kFailed;
  } else if (node != nullptr) {
    index = add_external(*node);
  } else if (is_shareable(value)) {
    index = add_leaf(PartKind::kConstant, 0, value);
  } else {
    return add_composite(value);
  }
  parts_by_object_.emplace(value, index);
  return index;
}

std::uint32_t StructureBuilder::add_composite(py::Borrowed value) {
  const std::uint32_t index = add_leaf(PartKind::kConstant, 0, nullptr);
  parts_by_object_.emplace(value, index);
  StructurePart part;  // filled aside: `parts_` grows meanwhile
  if (!add_container(part, value)) return kFailed;
  structure_.parts_[index] = std::move(part);
  return index;
}

bool StructureBuilder::add_children(StructurePart& part, py::Borrowed sequence) {
  const py::Ref items = py::Ref::steal(PySequence_Fast(sequence, "expected a sequence"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    part.children.push_back(add(PySequence_Fast_GET_ITEM(items.get(), i)));
    if (part.children.back() == kFailed) return false;
  }
  return true;
}

bool StructureBuilder::add_pairs(StructurePart& part, py::Borrowed dict) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    for (PyObject* item : {key, value}) {
      part.children.push_back(add(item));
      if (part.children.back() == kFailed) return false;
    }
  }
  return true;
}

bool StructureBuilder::add_container(StructurePart& part, py::Borrowed value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyTuple_Type || type == &PyList_Type || type == &PySet_Type || type == &PyFrozenSet_Type) {
    part.kind = base_container(value);
    return add_children(part, value);
  }
  if (type == &PyDict_Type || type == &PyODict_Type) {
    part.kind = PartKind::kDict;
    if (type == &PyODict_Type) part.object = py::Ref::share(reinterpret_cast<PyObject*>(type));
    return add_pairs(part, value);
  }
  if (type == &PySlice_Type) {
    const auto* slice = reinterpret_cast<PySliceObject*>(value);
    const py::Ref items = py::Ref::steal(PyTuple_Pack(3, slice->start, slice->stop, slice->step));
    part.kind = PartKind::kSlice;
    return items && add_children(part, items.get());
  }
  if (type == &PyMethod_Type) {
    const py::Ref items = py::Ref::steal(PyTuple_Pack(2, PyMethod_GET_FUNCTION(value), PyMethod_GET_SELF(value)));
    part.kind = PartKind::kMethod;
    return items && add_children(part, items.get());
  }
  return add_instance(part, value);
}

bool StructureBuilder::add_instance(StructurePart& part, py::Borrowed value) {
  PyTypeObject* type = Py_TYPE(value);
  if (!is_plain_class(type) && !is_struct_sequence(type)) return refuse(value), false;
  part.kind = PartKind::kInstance;
  part.object = py::Ref::share(reinterpret_cast<PyObject*>(type));
  part.base = base_container(value);
  if (part.base == PartKind::kDict ? !add_pairs(part, value)
                                   : part.base != PartKind::kConstant && !add_children(part, value)) {
    return false;
  }
  bool complete = true;
  const auto add_value = [&](PyObject* item) {
    part.children.push_back(add(item));
    complete = complete && part.children.back() != kFailed;
  };
  if (const py::Ref dict = instance_dict(value)) {
    PyObject *name, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict.get(), &position, &name, &item)) {
      part.attributes.push_back(py::Ref::share(name));
      add_value(item);
    }
  }
  for_each_slot(type, [&](PyObject* name) {
    const py::Ref item = py::Ref::steal(PyObject_GenericGetAttr(value, name));
    if (!item) return PyErr_Clear();
    part.slots.push_back(py::Ref::share(name));
    add_value(item.get());
  });
  return complete;
}

bool StructureBuilder::add_result(py::Borrowed value) {
  structure_.result_ = add(value);
  return structure_.result_ != kFailed;
}

}  // namespace thunder::interpreter
