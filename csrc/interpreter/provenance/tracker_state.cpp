#include "interpreter/python/cpython_compat.h"

#include <string_view>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/loop/observe.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

void Tracker::record_state_as(Node& node, StateKind kind) {
  const auto index = static_cast<Py_ssize_t>(kind);
  if (kind == StateKind::kNone || (node.is_constant() && kind != StateKind::kBuffer)) return;
  if (provenance_.find_read(node, Accessor::kState, nullptr, index) != nullptr) return;
  py::Ref state = state_of(node.object.get(), kind);
  if (!state) return;
  if (kind == StateKind::kBuffer) journal_.note_memory(node.object.get(), state.get());
  Read read{Accessor::kState, Expectation::kEquality, nullptr, index, std::move(state)};
  if (options_.locate) read.location = options_.locate();
  provenance_.add_read(node, std::move(read));
}

void Tracker::record_opaque(Node& node) {
  static PyObject* const arguments_name = PyUnicode_InternFromString("args");
  PyObject* object = node.object.get();
  if (node.stand_in || is_real_tensor(object)) return;
  const StateKind kind = state_kind(object);
  record_state_as(node, kind);
  if (kind == StateKind::kBuffer && PyErr_Occurred() != nullptr) return;
  const bool is_exception = PyExceptionInstance_Check(object) != 0;
  if (is_exception) {
    const py::Ref arguments = py::Ref::steal(PyObject_GenericGetAttr(object, arguments_name));
    if (arguments) record_descriptor(object, arguments_name, arguments.get());
  }
  // C code also sees the `__dict__` of an object of a class in C.
  const bool has_parts = PyModule_Check(object) || PyType_Check(object) || PyFunction_Check(object);
  if (has_parts || (is_python_class(Py_TYPE(object)) && !is_exception)) return PyErr_Clear();
  Node* dict = instance_dict_node(node);
  if (dict == nullptr || dict->deeply_read) return PyErr_Clear();
  dict->deeply_read = true;
  read_original_contents(*dict);
  read_deeply(dict->object.get(), 1);
}

void Tracker::record_key(py::Borrowed key) {
  if (is_scalar(key) || (Py_TYPE(key)->tp_hash != PyBaseObject_Type.tp_hash && !is_real_tensor(key))) return;
  if (Node* node = provenance_.find(key)) record_state_as(*node, StateKind::kIdentity);
}

bool Tracker::examine_identity(PyObject* left, PyObject* right) {
  const auto find = [this](PyObject* object) {
    if (PyTuple_CheckExact(object) && classify(object, hooks_) == ConstantKind::kEquality)
      return given_constant(object);
    if (!hooks_.is_traced(object)) return provenance_.find(object);
    const py::Ref real = py::Ref::steal(hooks_.original(object));
    return real ? provenance_.find(real.get()) : nullptr;
  };
  Node* first = find(left);
  Node* second = find(right);
  if (first == nullptr || second == nullptr || first == second) return PyErr_Occurred() == nullptr;
  if (first->is_constant() && second->is_constant()) return true;
  if (Py_TYPE(first->object.get()) != Py_TYPE(second->object.get())) return true;
  PyObject* key = second->object.get();
  if (provenance_.find_read(*first, Accessor::kOther, key, 0) != nullptr) return true;
  Read read{Accessor::kOther, Expectation::kEquality, py::Ref::share(key), 0, py::Ref::share(Py_False), second};
  if (options_.locate) read.location = options_.locate();
  first->needed = second->needed = true;
  provenance_.add_read(*first, std::move(read));
  return true;
}

void Tracker::record_result(py::Borrowed function, const std::string& name, py::Borrowed value) {
  record(provenance_.constant(function, name), Accessor::kCall, nullptr, 0, value);
}

bool Tracker::read_missing_global(PyObject* globals, PyObject* name) {
  record_dict_item(provenance_.constant(globals), name, nullptr);
  record_dict_item(provenance_.constant(PyEval_GetBuiltins()), name, nullptr);
  return true;
}

bool Tracker::read_empty_cell(PyObject* cell) {
  Node* node = provenance_.find(cell);
  const Record* written = journal_.find(cell);
  if (node != nullptr && (written == nullptr || !written->before)) record(*node, Accessor::kCell, nullptr, 0, nullptr);
  return true;
}

/// Guards the entry of `sys.modules` under a name, or its absence.
void Tracker::record_loaded_module(py::Borrowed name) {
  if (name == nullptr || !PyUnicode_CheckExact(static_cast<PyObject*>(name))) return;
  PyObject* key = Py_NewRef(name);
  PyUnicode_InternInPlace(&key);
  const py::Ref owned = py::Ref::steal(key);
  PyObject* loaded = PyImport_GetModuleDict();
  record_dict_item(provenance_.constant(loaded, "sys.modules"), key, PyDict_GetItemWithError(loaded, key));
}

PyObject* Tracker::read_import(PyObject* builtins, PyObject* name, PyObject* level, PyObject* module) {
  static PyObject* const import_key = PyUnicode_InternFromString("__import__");
  static PyObject* const name_key = PyUnicode_InternFromString("__name__");
  {
    const py::SavedError pending;
    record_dict_item(provenance_.constant(builtins), import_key, PyDict_GetItemWithError(builtins, import_key));
    if (PyLong_Check(level) && PyLong_AsLong(level) == 0) {
      const Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
      const py::Ref package = py::Ref::steal(dot < 0 ? nullptr : PyUnicode_Substring(name, 0, dot));
      record_loaded_module(package.get());
      record_loaded_module(name);
    } else if (module != nullptr && PyModule_Check(module)) {
      record_loaded_module(PyDict_GetItemWithError(PyModule_GetDict(module), name_key));
    }
    PyErr_Clear();
  }
  return module == nullptr ? nullptr : receive(module);
}

/// Reads of an attribute that code in C computed.
PyObject* Tracker::read_computed(PyObject* owner, PyObject* name, PyObject* value) {
  Node* node = provenance_.find(owner);
  if (PyWeakref_CheckProxy(owner)) {
    if (node == nullptr) return present(value);
    Py_DECREF(value);
    const py::Ref referent = referent_of(owner);
    record(*node, Accessor::kReferent, nullptr, 0, referent.get());
    return referent ? observed_get_attribute(*this, referent.get(), name) : PyObject_GetAttr(owner, name);
  }
  if (node != nullptr && is_thread_local(owner)) {
    record_descriptor(owner, name, value);
    return present(value);
  }
  return read_missing_attribute(owner, name) ? present(value) : nullptr;
}

// Methods in C of objects from outside, alone or in a `functools.partial`, change what nobody sees when C calls them.
py::Ref Tracker::seen_from_c(PyObject* callable, bool is_called) const {
  if (py::Ref getter = interpreted_getter(callable)) return getter;
  const auto is_method = [this](PyObject* function) {
    PyObject* self = PyCFunction_Check(function) ? PyCFunction_GET_SELF(function) : nullptr;
    return self != nullptr && !PyModule_Check(self) && !PyType_Check(self) && provenance_.find(self) != nullptr;
  };
  if (is_method(callable)) return is_called ? py::Ref() : interpreted_call(callable);
  if (std::string_view(Py_TYPE(callable)->tp_name) != "functools.partial") return nullptr;
  const py::Ref function = py::Ref::steal(PyObject_GetAttrString(callable, "func"));
  if (!function) PyErr_Clear();
  return function && is_method(function.get()) ? interpreted_partial(callable) : nullptr;
}

namespace {

/// `filter` and `itertools.filterfalse`, for which None stands for `bool`.
bool is_filter(PyObject* callable) {
  if (!PyType_Check(callable)) return false;
  const auto* type = reinterpret_cast<PyTypeObject*>(callable);
  return type == &PyFilter_Type || std::string_view(type->tp_name) == "itertools.filterfalse";
}

}  // namespace

// The callable that a function such as `map` gets in the place of `callable`; null: `callable` itself. A callable in C
// looks into its arguments and may write to them, so it is called by a function in Python, which is observed.
py::Ref Tracker::called_by_c(PyObject* callable, PyObject* caller) const {
  if (py::Ref function = seen_from_c(callable, false)) return function;
  if (callable == Py_None && is_filter(caller)) return interpreted_call(reinterpret_cast<PyObject*>(&PyBool_Type));
  const bool is_seen = PyFunction_Check(callable) || PyMethod_Check(callable) || is_python_class(Py_TYPE(callable));
  return is_seen || PyCallable_Check(callable) == 0 ? py::Ref() : interpreted_call(callable);
}

int Tracker::call_getter(PyObject* callable, PyObject* const* arguments, std::size_t count, PyObject* names,
                         PyObject** result) {
  if (const py::Ref function = seen_from_c(callable, true)) {
    *result = PyObject_Vectorcall(function.get(), arguments, count, names);
    return *result == nullptr ? -1 : 1;
  }
  const NativeCall call = native_call(callable, arguments, count, names);
  const NativeEffect effect = effect_of(call);
  const bool is_looked_into = effect == NativeEffect::kOpaque || effect == NativeEffect::kContents;
  const std::size_t total = count + (names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names)));
  const std::size_t skipped = static_cast<std::size_t>(call.arguments - arguments);
  std::vector<py::Ref> owned;
  std::vector<PyObject*> replaced;
  for (std::size_t i = 0; i < total; ++i) {
    const bool is_called = i >= skipped && calls_argument(call, i - skipped);
    py::Ref function = is_called        ? called_by_c(arguments[i], callable)
                       : is_looked_into ? seen_from_c(arguments[i], false)
                                        : py::Ref();
    replaced.push_back(function ? function.get() : arguments[i]);
    if (function) owned.push_back(std::move(function));
  }
  if (owned.empty()) return 0;
  const int status = before_native_call(callable, replaced.data(), count, names, result);
  if (status != 0) return status;
  *result = PyObject_Vectorcall(callable, replaced.data(), count, names);
  if (*result != nullptr) *result = present(*result);
  return *result == nullptr ? -1 : 1;
}

}  // namespace thunder::interpreter
