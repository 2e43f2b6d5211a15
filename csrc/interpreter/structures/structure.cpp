#include "interpreter/structures/structure.h"

#include <structmember.h>

#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/slots.h"

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
  bool make_function(std::uint32_t index);
  py::Ref make_call(const StructurePart& part);
  bool perform_item(const Effect& effect, py::Borrowed owner, py::Borrowed key, py::Borrowed value);

  const std::vector<StructurePart>& parts_;
  const StructureInputs& inputs_;
  std::vector<py::Ref> built_;
};

// The class implemented in C that lays out the instances of `type`, whose methods are not the user's.
PyTypeObject* native_base(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type;
}

py::Ref copy_by_class(py::Borrowed object) {
  if (PyFloat_CheckExact(object)) return py::Ref::steal(PyFloat_FromDouble(PyFloat_AS_DOUBLE(object)));
  const py::Ref module = py::Ref::steal(py::import_module("copy"));
  return py::Ref::steal(module ? PyObject_CallMethod(module.get(), "copy", "O", object) : nullptr);
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

// A function can be in its own closure: it is there before its parts are.
bool Construction::make_function(std::uint32_t index) {
  const StructurePart& part = parts_[index];
  py::Ref& place = built_[index];
  place = function_like(part.object.get());
  PyObject* function = place.get();
  PyObject* defaults = function == nullptr ? nullptr : get(part.children[0]);
  PyObject* keyword_defaults = defaults == nullptr ? nullptr : get(part.children[1]);
  PyObject* attributes = keyword_defaults == nullptr ? nullptr : get(part.children[2]);
  py::Ref cells = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(part.children.size() - 3)));
  if (attributes == nullptr || !cells) return false;
  for (std::size_t i = 3; i < part.children.size(); ++i) {
    PyObject* cell = get(part.children[i]);
    if (cell == nullptr) return false;
    PyTuple_SET_ITEM(cells.get(), static_cast<Py_ssize_t>(i - 3), Py_NewRef(cell));
  }
  if (PyTuple_GET_SIZE(cells.get()) > 0 && PyFunction_SetClosure(function, cells.get()) < 0) return false;
  if (attributes != Py_None && PyObject_SetAttrString(function, "__dict__", attributes) < 0) return false;
  return PyFunction_SetDefaults(function, defaults) == 0 && PyFunction_SetKwDefaults(function, keyword_defaults) == 0;
}

py::Ref Construction::make_call(const StructurePart& part) {
  PyObject* callable = get(part.children[0]);
  PyObject* arguments = callable == nullptr ? nullptr : get(part.children[1]);
  PyObject* keywords = arguments == nullptr ? nullptr : get(part.children[2]);
  return py::Ref::steal(keywords == nullptr ? nullptr : PyObject_Call(callable, arguments, keywords));
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
      place = py::Ref::steal(PySet_New(part.object.get()));
      done = place && (part.object || fill(place.get(), part.kind, part, part.children.size()));
      break;
    case PartKind::kFrozenSet: {
      const py::Ref items = part.object ? part.object : make_tuple(part, part.children.size());
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
    case PartKind::kCell: {
      place = py::Ref::steal(PyCell_New(nullptr));
      PyObject* contents = place && !part.children.empty() ? get(part.children[0]) : nullptr;
      done = place && (part.children.empty() || (contents != nullptr && PyCell_Set(place.get(), contents) == 0));
      break;
    }
    case PartKind::kFunction:
      done = make_function(index);
      break;
    case PartKind::kCall:
      place = make_call(part);
      break;
    case PartKind::kCopy:
      place = copy_by_class(part.object.get());
      break;
  }
  if (!done) place = nullptr;
}

bool Construction::perform_item(const Effect& effect, py::Borrowed owner, py::Borrowed key, py::Borrowed value) {
  switch (effect.kind) {
    case EffectKind::kSetItem:
      return set_dict_item(owner, key, value) == 0;
    case EffectKind::kDeleteItem:
      return delete_dict_item(owner, key) == 0;
    case EffectKind::kAddMember:
      return PySet_Add(owner, key) == 0;
    case EffectKind::kDiscardMember:
      return PySet_Discard(owner, key) >= 0;
    case EffectKind::kSetSlot:
      return set_slot(owner, key, value) == 0;
    case EffectKind::kDeleteSlot:
      if (set_slot(owner, key, nullptr) == 0 || !PyErr_ExceptionMatches(PyExc_AttributeError)) break;
      PyErr_Clear();
      return true;
    case EffectKind::kCall: {
      const py::Ref done = py::Ref::steal(PyObject_Call(owner, key, value));
      return static_cast<bool>(done);
    }
    case EffectKind::kReplaceDict:
    case EffectKind::kSetListItem:
    case EffectKind::kExtendList:
    case EffectKind::kReplaceList:
    case EffectKind::kReplaceSet:
    case EffectKind::kExtendDeque:
    case EffectKind::kReplaceDeque:
    case EffectKind::kSetCell:
    case EffectKind::kClearCell:
      break;
  }
  return PyErr_Occurred() == nullptr;
}

bool Construction::perform(const Effect& effect) {
  PyObject* owner = get(effect.owner);
  PyObject* key = owner != nullptr && has_key(effect.kind) ? get(effect.key) : nullptr;
  PyObject* value = owner != nullptr && has_value(effect.kind) ? get(effect.value) : nullptr;
  if (owner == nullptr || PyErr_Occurred() != nullptr) return false;
  switch (effect.kind) {
    case EffectKind::kReplaceDict:
      return replace_dict(owner, value) == 0;
    case EffectKind::kSetListItem:
      return PyList_SetItem(owner, effect.index, Py_NewRef(value)) == 0;
    case EffectKind::kExtendList:
      return PyList_SetSlice(owner, PyList_GET_SIZE(owner), PyList_GET_SIZE(owner), value) == 0;
    case EffectKind::kReplaceList:
      return PyList_SetSlice(owner, 0, PyList_GET_SIZE(owner), value) == 0;
    case EffectKind::kReplaceSet:
      return PySet_Clear(owner) == 0 && _PySet_Update(owner, value) == 0;
    case EffectKind::kExtendDeque:
      return extend_deque(owner, value) == 0;
    case EffectKind::kReplaceDeque:
      return replace_deque(owner, value) == 0;
    case EffectKind::kSetCell:
    case EffectKind::kClearCell:
      return PyCell_Set(owner, value) == 0;
    case EffectKind::kSetItem:
    case EffectKind::kDeleteItem:
    case EffectKind::kAddMember:
    case EffectKind::kDiscardMember:
    case EffectKind::kSetSlot:
    case EffectKind::kDeleteSlot:
    case EffectKind::kCall:
      break;
  }
  return perform_item(effect, owner, key, value);
}

}  // namespace

bool has_key(EffectKind kind) {
  return kind == EffectKind::kSetItem || kind == EffectKind::kDeleteItem || kind == EffectKind::kAddMember ||
         kind == EffectKind::kDiscardMember || kind == EffectKind::kSetSlot || kind == EffectKind::kDeleteSlot ||
         kind == EffectKind::kCall;
}

bool has_value(EffectKind kind) {
  return kind != EffectKind::kDeleteItem && kind != EffectKind::kAddMember && kind != EffectKind::kDiscardMember &&
         kind != EffectKind::kClearCell && kind != EffectKind::kDeleteSlot;
}

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

// Names, documentation and annotations are what `functools.wraps` changes.
py::Ref function_like(py::Borrowed function) {
  const auto* like = reinterpret_cast<PyFunctionObject*>(static_cast<PyObject*>(function));
  py::Ref made = py::Ref::steal(PyFunction_NewWithQualName(like->func_code, like->func_globals, like->func_qualname));
  if (!made) return nullptr;
  auto* copy = reinterpret_cast<PyFunctionObject*>(made.get());
  Py_XSETREF(copy->func_name, Py_XNewRef(like->func_name));
  Py_XSETREF(copy->func_doc, Py_XNewRef(like->func_doc));
  Py_XSETREF(copy->func_module, Py_XNewRef(like->func_module));
  PyObject* annotations = like->func_annotations;  // a dict, or a tuple that no one has looked at yet
  const bool is_dict = annotations != nullptr && PyDict_Check(annotations);
  Py_XSETREF(copy->func_annotations, is_dict ? PyDict_Copy(annotations) : Py_XNewRef(annotations));
  return is_dict && copy->func_annotations == nullptr ? py::Ref() : std::move(made);
}

}  // namespace thunder::interpreter
