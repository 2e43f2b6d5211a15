#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/tracker.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "interpreter/loop/eval.h"
#include "interpreter/loop/observe.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/dict_view.h"
#include "interpreter/python/memoized.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

PyObject* Tracker::admit_argument(Py_ssize_t index, const std::string& name, py::Borrowed value) {
  PyObject* key = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  if (key == nullptr) return nullptr;
  PyUnicode_InternInPlace(&key);
  const py::Ref owned = py::Ref::steal(key);
  const Read* read =
      reads_.record(state_.provenance.call(), Accessor::kArgument, key, index, value, Audience::kProgram);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (Node* node = state_.provenance.find(value); node != nullptr && node->name.empty()) node->name = name;
  return tensors_.present(Py_NewRef(value), read);
}

PyObject* Tracker::admit_keyword(py::Borrowed name, py::Borrowed value) {
  const Read* read = reads_.record(state_.provenance.call(), Accessor::kKeyword, name, 0, value, Audience::kProgram);
  return PyErr_Occurred() == nullptr ? tensors_.present(Py_NewRef(value), read) : nullptr;
}

void Tracker::record_result(py::Borrowed function, const std::string& name, py::Borrowed value) {
  reads_.record(state_.provenance.constant(function, name), Accessor::kCall, nullptr, 0, value);
}

namespace {

/// The program gets the attributes of a class as a mapping (`vars(cls)`, `cls.__dict__`), which lives as long as the
/// class.
void enter_class_dict(Reads& reads, py::Borrowed owner, py::Borrowed mapping) {
  if (Py_TYPE(mapping) != &PyDictProxy_Type || !PyType_Check(owner)) return;
  auto* type = reinterpret_cast<PyTypeObject*>(static_cast<PyObject*>(owner));
  if (is_immutable_type(type) || mapping_behind(mapping) != dict_of_type(type)) return;
  reads.shared_node(dict_of_type(type), std::string(type->tp_name) + ".__dict__");
}

/// Whether the program asks for the number of a hook's handle that it made, which is another one at each call.
/// PyTorch's own code has it for the key of the hook.
bool is_number_of_handle(const TrackerState& state, py::Borrowed owner, py::Borrowed name) {
  if (!is_spelled(name, "id") || std::string_view(Py_TYPE(owner)->tp_name) != "RemovableHandle") return false;
  PyObject* globals = PyEval_GetGlobals();
  return globals == nullptr || !state.options.is_library || !state.options.is_library(globals);
}

/// The class that `A[int]` is an alias of, which has its attributes; null for all else.
py::Ref origin_of_alias(py::Borrowed object) {
  static PyObject* const origin = PyUnicode_InternFromString("__origin__");
  static PyObject* const module = PyUnicode_InternFromString("__module__");
  PyTypeObject* type = Py_TYPE(object);
  PyObject* where = type == &Py_GenericAliasType ? nullptr : _PyType_Lookup(type, module);
  const bool is_of_typing =
      where != nullptr && PyUnicode_Check(where) && PyUnicode_CompareWithASCIIString(where, "typing") == 0;
  if (type != &Py_GenericAliasType && !is_of_typing) return nullptr;
  py::Ref found = py::Ref::steal(PyObject_GenericGetAttr(object, origin));
  PyErr_Clear();
  return found && PyType_Check(found.get()) ? std::move(found) : py::Ref();
}

/// The value of an enumeration's member, which code that nobody observes took from the `__dict__`; null for one that
/// cannot change.
const Read* record_enumeration_value(const TrackerState& state, Reads& reads, Node& member, PyObject* value) {
  static PyObject* const key = PyUnicode_InternFromString("_value_");
  if (classify(value, state.hooks) != ConstantKind::kUnknown) return nullptr;
  Node* dict = reads.instance_dict_node(member);
  if (dict == nullptr || PyDict_GetItemWithError(dict->object.get(), key) != value) return nullptr;
  return reads.record_dict_item(*dict, key, value, Audience::kProgram);
}

}  // namespace

PyObject* Tracker::read_attribute(PyObject* owner, PyObject* name, AttributeSource source, PyObject* value) {
  static PyObject* const getattribute = PyUnicode_InternFromString("__getattribute__");
  const Read* in_class = nullptr;
  if (!PyCFunction_Check(value) && !is_spelled(name, "dtype") && !state_.hooks.look_into(owner)) {
    Py_DECREF(value);
    return nullptr;
  }
  const bool is_tensor = state_.hooks.is_traced(owner);
  if (!is_tensor || reads_.is_of_own_class(owner)) {
    if (!is_tensor) reads_.note_class(owner);
    const bool is_shown = source == AttributeSource::kType;
    in_class = reads_.record_type_attribute(Py_TYPE(owner), name, is_shown ? Audience::kProgram : Audience::kCode);
    reads_.record_type_attribute(Py_TYPE(owner), getattribute);
  }
  enter_class_dict(reads_, owner, value);
  reads_.enter_unread(owner);
  switch (source) {
    case AttributeSource::kModule:
    case AttributeSource::kInstance: {
      if (state_.hooks.is_traced(owner)) {
        tensors_.read_attribute_behind(owner, name, value);
        break;
      }
      Node* node = PyModule_Check(owner) ? reads_.shared_node(owner) : state_.provenance.find(owner);
      if (node == nullptr && is_number_of_handle(state_, owner, name)) {
        Py_DECREF(value);
        PyErr_SetString(PyExc_NotImplementedError,
                        "thunder.jit: the number of the handle of a hook is read that is registered inside of the "
                        "function, which is another one at each call; register it outside");
        return nullptr;
      }
      if (node == nullptr) break;
      if (Node* dict = reads_.instance_dict_node(*node)) {
        return tensors_.present(value, reads_.record_dict_item(*dict, name, value, Audience::kProgram));
      }
      break;
    }
    case AttributeSource::kType:
      // An attribute of its own may hide it. Programs ask plain tensors for methods all the time, and give them none.
      if (is_tensor && reads_.is_of_own_class(owner)) tensors_.read_attribute_behind(owner, name, nullptr);
      reads_.record_absent_from_instance(owner, name);
      return tensors_.present(value, in_class);
    case AttributeSource::kTypeObject:
      in_class = reads_.record_type_attribute(reinterpret_cast<PyTypeObject*>(owner), name, Audience::kProgram);
      return tensors_.present(value, in_class);
    case AttributeSource::kDescriptor:
      if (state_.hooks.is_traced(owner)) {
        // A gradient has a history where a backward makes a graph.
        if (is_spelled(name, "requires_grad") || is_spelled(name, "grad_fn") || is_spelled(name, "is_leaf")) {
          parts_.note_grad_mode();
        }
        return tensors_.read_tensor_attribute(owner, name, value);
      }
      reads_.record_descriptor(owner, name, value);
      if (is_flat_iterator(value)) reads_.record_memory(owner);
      break;
    case AttributeSource::kComputed: {
      if (has_python_method(Py_TYPE(owner), getattribute)) break;  // its own reads were observed
      if (!read_missing_attribute(owner, name)) return Py_DECREF(value), nullptr;
      Node* node = is_enumeration_member(Py_TYPE(owner)) ? state_.provenance.find(owner) : nullptr;
      if (node == nullptr || !is_spelled(name, "value")) break;
      return tensors_.present(value, record_enumeration_value(state_, reads_, *node, value));
    }
  }
  return tensors_.present(value);
}

bool Tracker::read_missing_attribute(PyObject* owner, PyObject* name) {
  static PyObject* const getattribute = PyUnicode_InternFromString("__getattribute__");
  static PyObject* const getattr = PyUnicode_InternFromString("__getattr__");
  if (PyObject_TypeCheck(owner, &PySuper_Type)) return reads_.record_super_attribute(owner, name), true;
  reads_.enter_unread(owner);
  reads_.note_class(owner);
  for (PyObject* each : {name, getattribute, getattr}) reads_.record_type_attribute(Py_TYPE(owner), each);
  if (PyType_Check(owner)) {
    return reads_.record_type_attribute(reinterpret_cast<PyTypeObject*>(owner), name), true;
  }
  if (const py::Ref origin = origin_of_alias(owner)) read_missing_attribute(origin.get(), name);
  if (state_.hooks.is_traced(owner)) tensors_.read_attribute_behind(owner, name, nullptr);
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor == nullptr || Py_TYPE(descriptor)->tp_descr_set == nullptr) {
    reads_.record_absent_from_instance(owner, name);
  } else if (Py_TYPE(descriptor) == &PyMemberDescr_Type) {
    reads_.record_descriptor(owner, name, nullptr);
  }
  return true;
}

PyObject* Tracker::referent(PyObject* proxy) {
  const py::Ref object = referent_of(proxy);
  if (Node* node = state_.provenance.find(proxy)) reads_.record(*node, Accessor::kReferent, nullptr, 0, object.get());
  if (PyErr_Occurred() != nullptr) return nullptr;
  return object ? tensors_.present(Py_NewRef(object.get())) : nullptr;
}

PyObject* Tracker::read_global(PyObject* globals, PyObject* name, bool from_builtins, PyObject* value) {
  const Read* read = nullptr;
  if (Node* node = reads_.shared_node(globals)) {
    read = reads_.record_dict_item(*node, name, from_builtins ? nullptr : value, Audience::kProgram);
  }
  if (from_builtins) reads_.record_dict_item(state_.provenance.constant(PyEval_GetBuiltins()), name, value);
  return tensors_.present(value, from_builtins ? nullptr : read);
}

bool Tracker::read_missing_global(PyObject* globals, PyObject* name) {
  if (Node* node = reads_.shared_node(globals)) reads_.record_dict_item(*node, name, nullptr);
  reads_.record_dict_item(state_.provenance.constant(PyEval_GetBuiltins()), name, nullptr);
  return true;
}

PyObject* Tracker::read_cell(PyObject* cell, PyObject* value) {
  parts_.note_cell(cell, value);
  Node* node = state_.provenance.find(cell);
  return tensors_.present(value, node == nullptr ? nullptr : reads_.record_cell(*node, value, Audience::kProgram));
}

bool Tracker::read_empty_cell(PyObject* cell) {
  Node* node = state_.provenance.find(cell);
  const Record* written = state_.journal.find(cell);
  if (node == nullptr || (written != nullptr && written->before)) return true;
  reads_.record(*node, Accessor::kCell, nullptr, 0, nullptr);
  return true;
}

PyObject* Tracker::read_import(PyObject* builtins, PyObject* name, PyObject* level, PyObject* module) {
  static PyObject* const import_key = PyUnicode_InternFromString("__import__");
  static PyObject* const name_key = PyUnicode_InternFromString("__name__");
  {
    const py::SavedError pending;
    reads_.record_dict_item(state_.provenance.constant(builtins), import_key,
                            PyDict_GetItemWithError(builtins, import_key));
    if (PyLong_Check(level) && PyLong_AsLong(level) == 0) {
      const Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
      const py::Ref package = py::Ref::steal(dot < 0 ? nullptr : PyUnicode_Substring(name, 0, dot));
      reads_.record_loaded_module(package.get());
      reads_.record_loaded_module(name);
    } else if (module != nullptr && PyModule_Check(module)) {
      reads_.record_loaded_module(PyDict_GetItemWithError(PyModule_GetDict(module), name_key));
    }
    PyErr_Clear();
  }
  return module == nullptr ? nullptr : receive(module);
}

PyObject* Tracker::read_item(PyObject* owner, PyObject* key, PyObject* value) {
  const Read* read = nullptr;
  if (reads_.read_item(owner, key, value, &read)) return tensors_.present(value, read);
  Py_DECREF(value);
  return nullptr;
}

PyObject* Tracker::spread(PyObject* container) {
  if (state_.provenance.find(container) == nullptr) return Py_NewRef(container);
  if (state_.journal.find(container) != nullptr) return Observer::spread(container);
  if (!reads_.examine(container, PyDict_Check(container) ? Aspect::kKeys : Aspect::kLength)) return nullptr;
  bool is_changed = false;
  const auto get = [&](PyObject* key, PyObject* value) {
    PyObject* seen = read_item(container, key, Py_NewRef(value));
    is_changed = is_changed || seen != value;
    return py::Ref::steal(seen);
  };
  if (PyDict_Check(container)) {
    const py::Ref copy = py::Ref::steal(PyDict_Copy(container));
    PyObject *key, *value;
    for (Py_ssize_t position = 0; copy && PyDict_Next(container, &position, &key, &value) != 0;) {
      const py::Ref seen = get(key, value);
      if (!seen || PyDict_SetItem(copy.get(), key, seen.get()) < 0) return nullptr;
    }
    return copy ? Py_NewRef(is_changed ? copy.get() : container) : nullptr;
  }
  const py::Ref items = py::Ref::steal(PySequence_List(container));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
    const py::Ref index = py::Ref::steal(PyLong_FromSsize_t(i));
    py::Ref seen = index ? get(index.get(), PyList_GET_ITEM(items.get(), i)) : py::Ref();
    if (!seen || PyList_SetItem(items.get(), i, seen.release()) < 0) return nullptr;
  }
  if (!items || !is_changed) return items ? Py_NewRef(container) : nullptr;
  return PyTuple_Check(container) ? PyList_AsTuple(items.get()) : Py_NewRef(items.get());
}

bool Tracker::before_write(PyObject* owner, WriteKind kind, PyObject* key) {
  parts_.note_write(kind);
  reads_.enter_unread(owner);
  const std::uint64_t writes = state_.journal.write_count();
  state_.journal.begin_write();
  return writes_.before(owner, kind, key) && may_have_written(writes);
}

// A dict calls them as often as it is asked, which guards and the epilogue do besides the program.
bool Tracker::may_have_written(std::uint64_t writes) const {
  PyFrameObject* frame = state_.journal.write_count() == writes ? nullptr : PyEval_GetFrame();
  if (frame == nullptr) return true;
  const py::Ref code = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  PyObject* method = reinterpret_cast<PyCodeObject*>(code.get())->co_name;
  if (!is_spelled(method, "__hash__") && !is_spelled(method, "__eq__")) return true;
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: %U writes to something from outside of the function; guards call it, too", method);
  return false;
}

PyObject* Tracker::after_native_call(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                                     PyObject* value) {
  calls_.after_writes({callable, arguments, count, names});
  for (std::size_t i = 0; i < count; ++i) enter_class_dict(reads_, arguments[i], value);
  PyObject* made = is_real_tensor(value, state_.hooks) ? state_.hooks.make_anew(value) : nullptr;
  if (made == nullptr && PyErr_Occurred() == nullptr) return tensors_.present(value);
  Py_DECREF(value);
  return made;
}

namespace {

/// Whether `function` is a special method of `self` whose result CPython takes only as an object of the very class, or
/// of a number's size.
bool is_checked_method(py::Borrowed function, py::Borrowed self) {
  static const std::array names = [] {
    constexpr std::array kNames{"__float__", "__int__",    "__index__",       "__complex__", "__bool__",
                                "__len__",   "__hash__",   "__length_hint__", "__sizeof__",  "__str__",
                                "__repr__",  "__format__", "__bytes__",       "__dir__",     "__fspath__"};
    std::array<PyObject*, kNames.size()> found{};
    std::ranges::transform(kNames, found.begin(), PyUnicode_InternFromString);
    return found;
  }();
  return std::ranges::any_of(names, [&](PyObject* name) { return _PyType_Lookup(Py_TYPE(self), name) == function; });
}

bool look_one_level_deep(TensorHooks& hooks, PyObject* value) {
  if (!PyTuple_Check(value) && !PyList_Check(value)) return hooks.look_into(value);
  PyObject* const* items = PySequence_Fast_ITEMS(value);
  return std::all_of(items, items + Py_SIZE(value), [&](PyObject* item) { return hooks.look_into(item); });
}

}  // namespace

PyObject* Tracker::return_to_c(PyObject* function, PyObject* self, PyObject* value) {
  if (!tensors_.is_in_caller() && !look_one_level_deep(state_.hooks, value)) {
    Py_DECREF(value);
    return nullptr;
  }
  if (!stands_for_number(value)) return value;
  if (function == nullptr || self == nullptr || !is_checked_method(function, self)) {
    number_takers_.insert(current_instruction());
    return value;
  }
  const py::Ref number = py::Ref::steal(value);
  return plain_number(value);
}

void Tracker::note_numbers(const VectorCall& call) {
  const auto is_one = [this](PyObject* argument) { return stands_for_number(argument); };
  if (std::ranges::any_of(call.all(), is_one)) number_takers_.insert(current_instruction());
}

// Code in C that checks for a number's very class refuses what stands for a number.
void Tracker::notice_failure() {
  if (number_takers_.empty() || !number_takers_.contains(current_instruction())) return;
  const bool may_follow = PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                          PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                          PyErr_ExceptionMatches(PyExc_SystemError) != 0;
  if (may_follow && state_.options.refuse_numbers) state_.options.refuse_numbers();
}

Treatment Tracker::treatment(PyCodeObject* code) {
  const auto [place, is_new] = treatments_.try_emplace(code, Treatment::kInterpret);
  if (is_new) reads_.given().add_code(code);
  if (is_new && state_.options.treatment) place->second = state_.options.treatment(code);
  return place->second;
}

void Tracker::made(PyObject* object) {
  if (PyFunction_Check(object)) {
    // `types.FunctionType(code, {})`; a `def` has the globals of its frame.
    PyObject* globals = PyFunction_GET_GLOBALS(object);
    if (globals != PyEval_GetGlobals()) reads_.note_globals(globals);
    return reads_.note_made_function(object);
  }
  if (PyType_Check(object) || PyModule_Check(object) || is_memoized(object)) {
    if (state_.provenance.find(object) == nullptr) reads_.note_made(object);
    return;
  }
  static PyObject* const finalizer = PyUnicode_InternFromString("__del__");
  PyTypeObject* type = Py_TYPE(object);
  if (!is_python_class(type) || type->tp_finalize == nullptr || PyObject_IS_GC(object) == 0) return;
  PyObject* method = _PyType_Lookup(type, finalizer);
  py::Ref reference;
  if (method != nullptr && PyFunction_Check(method)) reference = py::Ref::steal(PyWeakref_NewRef(object, nullptr));
  PyErr_Clear();
  if (reference) made_.push_back(std::move(reference));
}

void Tracker::interrupted() {
  PyObject* exception = take_exception();
  if (!interruption_) interruption_ = py::Ref::share(exception);
  restore_exception(exception);
}

void Tracker::raise_interruption() const {
  PyErr_Clear();
  const py::Ref exception = interruption_ ? interruption_ : last_handler_exception();
  restore_exception(Py_NewRef(exception.get()));
}

void Tracker::leave_objects() {
  for (const py::Ref& reference : made_) {
    if (const py::Ref object = referent_of(reference.get())) skip_finalizer(object.get());
  }
  made_.clear();
}

}  // namespace thunder::interpreter
