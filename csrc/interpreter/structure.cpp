#include "interpreter/structure.h"

#include <structmember.h>

#include "interpreter/journal.h"
#include "interpreter/provenance_constant.h"

namespace thunder::interpreter {
namespace {

/// One run of a template.
class Construction {
 public:
  Construction(const std::vector<StructurePart>& parts, const StructureInputs& inputs)
      : parts_(parts), inputs_(inputs), built_(parts.size()) {}

  /// Borrowed from this construction; null with an exception.
  py::Borrowed get(std::uint32_t index) {
    if (!built_[index]) make(index);
    return built_[index].get();
  }
  bool perform(const Effect& effect);

 private:
  void make(std::uint32_t index);
  py::Ref make_tuple(const StructurePart& part, std::size_t count);
  bool fill(py::Borrowed object, PartKind kind, const StructurePart& part, std::size_t count);
  bool make_instance(std::uint32_t index);
  bool set_attributes(py::Borrowed object, const StructurePart& part, std::size_t first);

  const std::vector<StructurePart>& parts_;
  const StructureInputs& inputs_;
  std::vector<py::Ref> built_;
};

// The class implemented in C that lays out the instances of `type`, whose methods are not the user's.
PyTypeObject* native_base(PyTypeObject* type) {
  while ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) type = type->tp_base;
  return type;
}

int set_dict_item(py::Borrowed dict, py::Borrowed key, py::Borrowed value) {
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value);
}

int clear_dict(py::Borrowed dict) {
  if (!PyODict_Check(dict)) return PyDict_Clear(dict), 0;
  const py::Ref clear = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyODict_Type), "clear"));
  const py::Ref done = py::Ref::steal(clear ? PyObject_CallOneArg(clear.get(), dict) : nullptr);
  return done ? 0 : -1;
}

py::Ref Construction::make_tuple(const StructurePart& part, std::size_t count) {
  py::Ref tuple = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; tuple && i < count; ++i) {
    PyObject* item = get(part.children[i]);
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
  }
  return tuple;
}

bool Construction::fill(py::Borrowed object, PartKind kind, const StructurePart& part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* item = get(part.children[i]);
    if (item == nullptr) return false;
    int status = 0;
    if (kind == PartKind::kList) {
      status = PyList_Append(object, item);
    } else if (kind == PartKind::kSet) {
      status = PySet_Add(object, item);
    } else {
      PyObject* value = get(part.children[++i]);
      status = value == nullptr ? -1 : set_dict_item(object, item, value);
    }
    if (status < 0) return false;
  }
  return true;
}

bool Construction::set_attributes(py::Borrowed object, const StructurePart& part, std::size_t first) {
  if (!part.attributes.empty()) {
    const py::Ref dict = instance_dict(object);
    if (!dict) return false;
    for (const py::Ref& name : part.attributes) {
      PyObject* value = get(part.children[first++]);
      if (value == nullptr || PyDict_SetItem(dict.get(), name.get(), value) < 0) return false;
    }
  }
  for (const py::Ref& name : part.slots) {
    PyObject* value = get(part.children[first++]);
    if (value == nullptr || PyObject_GenericSetAttr(object, name.get(), value) < 0) return false;
  }
  return true;
}

bool Construction::make_instance(std::uint32_t index) {
  const StructurePart& part = parts_[index];
  auto* type = reinterpret_cast<PyTypeObject*>(part.object.get());
  const std::size_t items = part.children.size() - part.attributes.size() - part.slots.size();
  py::Ref arguments = py::Ref::steal(PyTuple_New(0));
  if (part.base == PartKind::kTuple || part.base == PartKind::kFrozenSet) {
    const py::Ref contents = make_tuple(part, items);
    if (!contents) return false;
    arguments = py::Ref::steal(PyTuple_Pack(1, contents.get()));
  }
  built_[index] = py::Ref::steal(arguments ? native_base(type)->tp_new(type, arguments.get(), nullptr) : nullptr);
  PyObject* object = built_[index].get();
  if (object == nullptr) return false;
  const bool is_filled_later =
      part.base == PartKind::kList || part.base == PartKind::kDict || part.base == PartKind::kSet;
  if (is_filled_later && !fill(object, part.base, part, items)) return false;
  return set_attributes(object, part, items);
}

void Construction::make(std::uint32_t index) {
  const StructurePart& part = parts_[index];
  py::Ref& place = built_[index];
  bool done = true;
  switch (part.kind) {
    case PartKind::kConstant:
      place = part.object;
      break;
    case PartKind::kOutput:
      place = py::Ref::share(inputs_.outputs[part.index]);
      break;
    case PartKind::kInput:
      place = py::Ref::share(inputs_.inputs[part.index]);
      break;
    case PartKind::kExternal:
      place = py::Ref::share(inputs_.externals[part.index]);
      break;
    case PartKind::kTuple:
      place = make_tuple(part, part.children.size());
      break;
    case PartKind::kList:
      place = py::Ref::steal(PyList_New(0));
      done = place && fill(place.get(), part.kind, part, part.children.size());
      break;
    case PartKind::kDict:
      place = py::Ref::steal(part.object ? PyODict_New() : PyDict_New());
      done = place && fill(place.get(), part.kind, part, part.children.size());
      break;
    case PartKind::kSet:
      place = py::Ref::steal(PySet_New(nullptr));
      done = place && fill(place.get(), part.kind, part, part.children.size());
      break;
    case PartKind::kFrozenSet: {
      const py::Ref items = make_tuple(part, part.children.size());
      place = py::Ref::steal(items ? PyFrozenSet_New(items.get()) : nullptr);
      break;
    }
    case PartKind::kSlice:
    case PartKind::kMethod: {
      const py::Ref items = make_tuple(part, part.children.size());
      if (!items) break;
      PyObject** item = PySequence_Fast_ITEMS(items.get());
      place = py::Ref::steal(part.kind == PartKind::kSlice ? PySlice_New(item[0], item[1], item[2])
                                                           : PyMethod_New(item[0], item[1]));
      break;
    }
    case PartKind::kInstance:
      done = make_instance(index);
      break;
  }
  if (!done) place = nullptr;
}

bool Construction::perform(const Effect& effect) {
  PyObject* owner = get(effect.owner);
  PyObject* key = effect.key.get();
  const bool removes = effect.kind == EffectKind::kDeleteItem || effect.kind == EffectKind::kDeleteSlot;
  PyObject* value = removes ? nullptr : get(effect.value);
  if (owner == nullptr || (value == nullptr && !removes)) return false;
  switch (effect.kind) {
    case EffectKind::kSetItem:
      return set_dict_item(owner, key, value) == 0;
    case EffectKind::kDeleteItem:
      return (PyODict_Check(owner) ? PyODict_DelItem(owner, key) : PyDict_DelItem(owner, key)) == 0;
    case EffectKind::kReplaceDict: {
      if (clear_dict(owner) < 0) return false;
      PyObject *name, *item;
      Py_ssize_t position = 0;
      while (PyDict_Next(value, &position, &name, &item)) {
        if (set_dict_item(owner, name, item) < 0) return false;
      }
      return true;
    }
    case EffectKind::kSetListItem:
      return PyList_SetItem(owner, effect.index, Py_NewRef(value)) == 0;
    case EffectKind::kExtendList:
      return PyList_SetSlice(owner, PyList_GET_SIZE(owner), PyList_GET_SIZE(owner), value) == 0;
    case EffectKind::kReplaceList:
      return PyList_SetSlice(owner, 0, PyList_GET_SIZE(owner), value) == 0;
    case EffectKind::kReplaceSet:
      return PySet_Clear(owner) == 0 && _PySet_Update(owner, value) == 0;
    case EffectKind::kSetCell:
      return PyCell_Set(owner, value) == 0;
    case EffectKind::kSetSlot:
    case EffectKind::kDeleteSlot:
      return set_slot(owner, key, value) == 0;
  }
  return false;
}

}  // namespace

PyObject* Structure::build(const StructureInputs& inputs) const {
  const StructurePart& result = parts_[result_];
  if (effects_.empty()) {  // one tensor, mostly: nothing to remember
    if (result.kind == PartKind::kOutput) return Py_NewRef(inputs.outputs[result.index]);
    if (result.kind == PartKind::kConstant) return Py_NewRef(result.object.get());
  }
  Construction construction(parts_, inputs);
  for (const Effect& effect : effects_) {
    if (!construction.perform(effect)) return nullptr;
  }
  return Py_XNewRef(construction.get(result_));
}

int Structure::visit(visitproc visitor, void* argument) const {
  for (const StructurePart& part : parts_) {
    if (!part.object) continue;
    if (const int status = visitor(part.object.get(), argument); status != 0) return status;
  }
  return 0;
}

}  // namespace thunder::interpreter
