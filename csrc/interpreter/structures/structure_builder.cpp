#include "interpreter/structures/structure_builder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/deque.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

PartKind base_container(py::Borrowed value) {
  if (PyTuple_Check(value)) return PartKind::kTuple;
  if (PyList_Check(value)) return PartKind::kList;
  if (PyDict_Check(value)) return PartKind::kDict;
  if (PyFrozenSet_Check(value)) return PartKind::kFrozenSet;
  return PySet_Check(value) ? PartKind::kSet : PartKind::kConstant;
}

PyTypeObject* imported_type(const char* module_name, const char* name) {
  const py::Ref module = py::Ref::steal(py::import_module(module_name));
  PyObject* type = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  PyErr_Clear();
  return type != nullptr && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type) : nullptr;
}

PyTypeObject* default_dict_type() {
  static PyTypeObject* const type = imported_type("collections", "defaultdict");
  return type;
}

PyTypeObject* partial_type() {
  static PyTypeObject* const type = imported_type("functools", "partial");
  return type;
}

PyTypeObject* keyed_ref_type() {
  static PyTypeObject* const type = imported_type("weakref", "KeyedRef");
  return type;
}

/// Mutable, with contents that are no Python objects, and `copy.copy` makes another one.
bool is_buffer(py::Borrowed value) {
  const std::string_view name = Py_TYPE(value)->tp_name;
  return PyByteArray_CheckExact(value) || name == "array.array" || name == "numpy.ndarray";
}

// A class whose instances consist of a container of Python's own, attributes and slots, and nothing that only C sees.
bool is_plain_class(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type == &PyBaseObject_Type || type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type ||
         type == &PyODict_Type || type == &PySet_Type || type == &PyFrozenSet_Type || type == default_dict_type();
}

// A named tuple written in C, such as `torch.return_types.max`: its constructor takes the items, as tuple's does.
bool is_struct_sequence(PyTypeObject* type) {
  if (type->tp_base != &PyTuple_Type || is_python_class(type)) return false;
  PyObject* visible = PyDict_GetItemString(dict_of_type(type), "n_sequence_fields");
  PyObject* all = PyDict_GetItemString(dict_of_type(type), "n_fields");
  return visible != nullptr && all != nullptr && PyObject_RichCompareBool(visible, all, Py_EQ) == 1;
}

/// Whether an object that code in C made is known never to change.
bool is_immutable(py::Borrowed value) {
  constexpr std::array kTypes{"decimal.Decimal", "re.Pattern",  "re.Match",    "_struct.Struct",
                              "torch.finfo",     "torch.iinfo", "numpy.dtype", "numpy.generic"};
  const bool is_scalar = PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) ||
                         PyBytes_Check(value) || PyComplex_Check(value);
  if (is_python_class(Py_TYPE(value)) && PyObject_IS_GC(value) != 0) return false;  // it may have attributes
  if (is_scalar) return true;
  for (const PyTypeObject* type = Py_TYPE(value); type != nullptr; type = type->tp_base) {
    const std::string_view name = type->tp_name;
    if (name == "numpy.void") return false;  // a row of an array, whose fields can be set
    if (name.starts_with("datetime.") || std::ranges::find(kTypes, name) != kTypes.end()) return true;
  }
  return false;
}

/// Whether a module is the one that an import gives.
bool is_imported(py::Borrowed module) {
  const py::Ref name = py::Ref::steal(PyModule_GetNameObject(module));
  const py::Ref imported = py::Ref::steal(name ? PyImport_GetModule(name.get()) : nullptr);
  PyErr_Clear();
  return imported.get() == module;
}

/// A class or module that the function made is another one at each call.
void refuse_made(py::Borrowed value) {
  PyErr_Format(
      PyExc_NotImplementedError,
      PyType_Check(value) ? "thunder.jit: the class '%.200s', made inside of the function, or an instance of it "
                            "is returned or stored; define the class outside"
                          : "thunder.jit: an object of type '%.200s', made inside of the function, is returned "
                            "or stored; make it outside",
      (PyType_Check(value) ? reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(value)) : Py_TYPE(value))->tp_name);
}

/// The class that is handed on with a value: itself, or that of a member of an enumeration; null for all else.
PyTypeObject* class_shown_by(py::Borrowed value) {
  if (PyType_Check(value)) return reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(value));
  return is_enumeration_member(Py_TYPE(value)) ? Py_TYPE(value) : nullptr;
}

void refuse(py::Borrowed value) {
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: expected tensors, numbers, containers and plain objects in what the function returns or "
               "stores, got an object of type '%.200s' made inside of it; return its parts instead",
               Py_TYPE(value)->tp_name);
}

/// Templates are built, run and printed by recursion, for which a thread's stack has to be large enough.
constexpr int kDeepest = 1000;

void refuse_depth(py::Borrowed value) {
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: what the function returns or stores has objects in objects, more than %d levels deep (the "
               "one at that depth is of type '%.200s')",
               kDeepest, Py_TYPE(value)->tp_name);
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

// Whether the function itself may serve all calls: neither it nor anything in it was made by the program.
bool StructureBuilder::is_shareable_function(py::Borrowed function) {
  if (tracker_.reads().given().is_code_constant(PyFunction_GET_CODE(function))) return false;
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    if (tracker_.provenance().find(PyTuple_GET_ITEM(closure, i)) == nullptr) return false;
  }
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  return defaults == nullptr || classify(defaults, tracker_.hooks()) != ConstantKind::kUnknown;
}

// `torch.Size`: a tuple in C that the hooks know, and whose constructor takes the items.
bool StructureBuilder::is_size(py::Borrowed value) const {
  return PyTuple_Check(value) && tracker_.hooks().classify(value) == ConstantKind::kEquality;
}

// Whether one and the same object may serve all calls.
bool StructureBuilder::is_shareable(py::Borrowed value) {
  if (PyFunction_Check(value)) return is_shareable_function(value);
  if (PyTuple_CheckExact(value) || is_size(value) || is_nan(value)) return tracker_.reads().given().contains(value);
  if (PyModule_Check(value)) return is_imported(value);
  if (std::string_view(Py_TYPE(value)->tp_name) == "torch._C.Generator") return false;
  return classify(value, tracker_.hooks()) != ConstantKind::kUnknown || is_immutable(value);
}

std::uint32_t StructureBuilder::add(py::Borrowed value) {
  if (const auto known = parts_by_object_.find(value); known != parts_by_object_.end()) return known->second;
  kept_.push_back(py::Ref::share(value));
  std::uint32_t index = kFailed;
  const Node* node = tracker_.provenance().find(value);
  if (node == nullptr) node = tracker_.provenance().find_shown(value);
  if (tracker_.hooks().is_traced(value) || tracker_.hooks().is_size(value)) {
    index = add_tensor(value);
  } else if (tracker_.hooks().is_real_tensor(value)) {
    const py::Ref traced = py::Ref::steal(tracker_.receive(Py_NewRef(value)));
    index = traced ? add_tensor(traced.get()) : kFailed;
  } else if (PyTypeObject* type = class_shown_by(value); type != nullptr && tracker_.reads().may_be_made(type)) {
    refuse_made(reinterpret_cast<PyObject*>(type));
  } else if (node != nullptr) {
    index = add_external(*node);
  } else if (!PyDict_Check(value) && tracker_.reads().is_made(value)) {
    refuse_made(value);
  } else if (is_shareable(value)) {
    const Node* given = tracker_.reads().given().node_of(value);
    index = given != nullptr ? add_external(*given) : add_leaf(PartKind::kConstant, 0, value);
  } else {
    return add_composite(value);
  }
  parts_by_object_.emplace(value, index);
  return index;
}

std::uint32_t StructureBuilder::add_composite(py::Borrowed value) {
  if (!tracker_.memos().may_write(value)) return kFailed;
  const std::uint32_t index = add_leaf(PartKind::kConstant, 0, nullptr);
  parts_by_object_.emplace(value, index);
  StructurePart part;  // filled aside: `parts_` grows meanwhile
  if (depth_ >= kDeepest) return refuse_depth(value), kFailed;
  ++depth_;
  const bool is_added = add_container(part, value);
  --depth_;
  if (!is_added) return kFailed;
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

// Copies of a set with room for its members alone have one order, whoever copies them again. Adding them one by one
// gives another order, which the next call would be traced for.
bool StructureBuilder::add_order(StructurePart& part, py::Borrowed container) const {
  const auto is_constant = [this](std::uint32_t child) {
    return structure_.parts_[child].kind == PartKind::kConstant && structure_.parts_[child].object;
  };
  if (!PyAnySet_Check(container) || !std::ranges::all_of(part.children, is_constant)) return true;
  part.object = py::Ref::steal(PySet_New(container));
  return part.object.get() != nullptr;
}

bool StructureBuilder::add_pairs(StructurePart& part, py::Borrowed dict) {
  const py::Ref ordered = copy_of_dict(dict);
  if (!ordered) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(ordered.get(), &position, &key, &value)) {
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
    return add_children(part, value) && add_order(part, value);
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
  return add_native(part, value);
}

bool StructureBuilder::add_call(StructurePart& part, py::Borrowed callable, py::Ref arguments, py::Ref keywords) {
  part.kind = PartKind::kCall;
  if (!arguments || !keywords) return false;
  kept_.push_back(arguments);
  kept_.push_back(keywords);
  part.children.push_back(add(callable));
  for (const py::Ref& made : {arguments, keywords}) {
    if (part.children.back() == kFailed) return false;
    part.children.push_back(add_composite(made.get()));
  }
  return part.children.back() != kFailed;
}

bool StructureBuilder::add_function(StructurePart& part, py::Borrowed value) {
  auto* function = reinterpret_cast<PyFunctionObject*>(value);
  part.kind = PartKind::kFunction;
  part.object = function_like(value);  // the function itself holds what this call computes
  if (!part.object) return false;
  const auto add_child = [&](PyObject* child) {
    part.children.push_back(add(child == nullptr ? Py_None : child));
    return part.children.back() != kFailed;
  };
  if (!add_child(function->func_defaults) || !add_child(function->func_kwdefaults)) return false;
  if (!add_child(function->func_dict)) return false;
  PyObject* closure = function->func_closure;
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    if (!add_child(PyTuple_GET_ITEM(closure, i))) return false;
  }
  return true;
}

// An array that shows the memory of a tensor, or of an array from outside: a copy of it would not.
bool StructureBuilder::shows_other_memory(py::Borrowed array) {
  py::Ref base = py::Ref::steal(PyObject_GetAttrString(array, "base"));
  while (base && base.get() != Py_None) {
    const bool is_tensor = tracker_.hooks().is_traced(base.get()) || tracker_.hooks().is_real_tensor(base.get());
    if (is_tensor || tracker_.provenance().find(base.get()) != nullptr) {
      PyErr_Format(
          PyExc_NotImplementedError,
          "thunder.jit: returns or stores an array over the memory of a tensor, or of an array from outside of "
          "the function; use a copy of it");
      return true;
    }
    base = py::Ref::steal(PyObject_GetAttrString(base.get(), "base"));
  }
  PyErr_Clear();
  return false;
}

// `tensor.numpy(force=True)`: a tensor that requires grad by now has given its array before.
bool StructureBuilder::add_array(StructurePart& part, py::Borrowed tensor) {
  const py::Ref method = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(tensor)), "numpy"));
  py::Ref arguments = py::Ref::steal(PyTuple_Pack(1, static_cast<PyObject*>(tensor)));
  py::Ref keywords = py::Ref::steal(PyDict_New());
  if (!method || !arguments || !keywords || PyDict_SetItemString(keywords.get(), "force", Py_True) < 0) return false;
  return add_call(part, method.get(), std::move(arguments), std::move(keywords));
}

// Objects of classes written in C.
bool StructureBuilder::add_native(StructurePart& part, py::Borrowed value) {
  PyTypeObject* type = Py_TYPE(value);
  if (PyFunction_Check(value)) return add_function(part, value);
  if (type == &PyCell_Type) {
    part.kind = PartKind::kCell;
    if (PyObject* contents = PyCell_GET(value)) part.children.push_back(add(contents));
    return part.children.empty() || part.children.back() != kFailed;
  }
  if (const py::Ref tensor = py::Ref::steal(tracker_.hooks().tensor_shown_by(value))) {
    return add_array(part, tensor.get());
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (is_buffer(value) || is_nan(value)) {
    if (is_buffer(value) && shows_other_memory(value)) return false;
    part.kind = PartKind::kCopy;
    part.object = py::Ref::share(value);
    return true;
  }
  if (is_deque(value) && !is_python_class(type)) {
    const py::Ref items = copy_of(value, Store::kDeque);
    const py::Ref limit = py::Ref::steal(PyObject_GetAttrString(value, "maxlen"));
    if (!items || !limit) return false;
    return add_call(part, reinterpret_cast<PyObject*>(type), py::Ref::steal(PyTuple_Pack(2, items.get(), limit.get())),
                    py::Ref::steal(PyDict_New()));
  }
  if (type == partial_type()) {
    const py::Ref function = py::Ref::steal(PyObject_GetAttrString(value, "func"));
    const py::Ref given = py::Ref::steal(PyObject_GetAttrString(value, "args"));
    const py::Ref keywords = py::Ref::steal(PyObject_GetAttrString(value, "keywords"));
    const py::Ref first = py::Ref::steal(function ? PyTuple_Pack(1, function.get()) : nullptr);
    if (!given || !keywords || !first) return false;
    return add_call(part, reinterpret_cast<PyObject*>(type),
                    py::Ref::steal(PySequence_Concat(first.get(), given.get())),
                    py::Ref::steal(PyDict_Copy(keywords.get())));
  }
  if (PyWeakref_CheckRefExact(value) || type == keyed_ref_type()) return add_weak_reference(part, value);
  if (PyObject* mapping = mapping_behind(value)) return add_dict_view(part, value, mapping);
  return add_instance(part, value);
}

// `dict.keys()` and its like are made anew by the method of `dict`, or of OrderedDict, whose views are others; a
// `types.MappingProxyType` by its type.
bool StructureBuilder::add_dict_view(StructurePart& part, py::Borrowed view, py::Borrowed mapping) {
  PyTypeObject* type = Py_TYPE(view);
  py::Ref callable = py::Ref::share(reinterpret_cast<PyObject*>(type));
  if (type != &PyDictProxy_Type) {
    const char* method = PyDictKeys_Check(view) ? "keys" : PyDictValues_Check(view) ? "values" : "items";
    const bool is_plain = type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type;
    PyTypeObject* maker = is_plain ? &PyDict_Type : &PyODict_Type;
    callable = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(maker), method));
  }
  return callable && add_call(part, callable.get(), py::Ref::steal(PyTuple_Pack(1, static_cast<PyObject*>(mapping))),
                              py::Ref::steal(PyDict_New()));
}

bool StructureBuilder::add_weak_reference(StructurePart& part, py::Borrowed value) {
  PyObject* callback = reinterpret_cast<PyWeakReference*>(value)->wr_callback;
  const py::Ref referent = py::Ref::steal(PyObject_CallNoArgs(value));
  // The handle of a hook refers to the hooks of a tensor or a module, which another call makes anew.
  if (referent && PyDict_Check(referent.get())) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: the function returns or stores the handle of a hook that it registered, such as "
                    "Tensor.register_hook gives; register the hook outside, or drop the handle");
    return false;
  }
  if (!referent || referent.get() == Py_None) return refuse(value), false;
  const py::Ref key = py::Ref::steal(PyObject_GetAttrString(value, "key"));
  PyErr_Clear();
  const py::Ref items = py::Ref::steal(
      PyTuple_Pack(3, referent.get(), callback == nullptr ? Py_None : callback, key ? key.get() : Py_None));
  if (!items) return false;
  return add_call(part, reinterpret_cast<PyObject*>(Py_TYPE(value)),
                  py::Ref::steal(PyTuple_GetSlice(items.get(), 0, key ? 3 : 2)), py::Ref::steal(PyDict_New()));
}

bool StructureBuilder::add_instance(StructurePart& part, py::Borrowed value) {
  PyTypeObject* type = Py_TYPE(value);
  if (tracker_.reads().may_be_made(type)) {
    return refuse_made(reinterpret_cast<PyObject*>(type)), false;
  }
  if (!is_plain_class(type) && !is_struct_sequence(type) && !is_size(value)) return refuse(value), false;
  part.kind = PartKind::kInstance;
  part.object = py::Ref::share(reinterpret_cast<PyObject*>(type));
  part.base = base_container(value);
  if (part.base == PartKind::kDict ? !add_pairs(part, value)
                                   : part.base != PartKind::kConstant && !add_children(part, value)) {
    return false;
  }
  bool complete = true;
  const auto add_value = [&](PyObject* item) {
    if (!complete) return;  // an exception is set
    part.children.push_back(add(item));
    complete = part.children.back() != kFailed;
  };
  if (const py::Ref dict = instance_dict(value)) {
    PyObject *name, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict.get(), &position, &name, &item)) {
      part.attributes.push_back(py::Ref::share(name));
      add_value(item);
    }
  }
  const auto add_slot = [&](PyObject* name) {
    if (!complete) return;
    const py::Ref item = py::Ref::steal(PyObject_GenericGetAttr(value, name));
    if (!item) return PyErr_Clear();
    part.slots.push_back(py::Ref::share(name));
    add_value(item.get());
  };
  for_each_slot(type, add_slot);
  if (!complete) return false;
  static PyObject* const default_factory = PyUnicode_InternFromString("default_factory");
  if (PyObject_TypeCheck(value, default_dict_type()) != 0) add_slot(default_factory);
  return complete;
}

bool StructureBuilder::add_result(py::Borrowed value) {
  structure_.result_ = add(value);
  return structure_.result_ != kFailed;
}

}  // namespace thunder::interpreter
