#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/native_calls.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/journal_restore.h"
#include "interpreter/provenance/provenance_constant.h"
#include "interpreter/python/memoized.h"
#include "interpreter/python/method_wrapper.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

/// `filter` and `itertools.filterfalse`, for which None stands for `bool`.
bool is_filter(PyObject* callable) {
  if (!PyType_Check(callable)) return false;
  const auto* type = reinterpret_cast<PyTypeObject*>(callable);
  return type == &PyFilter_Type || std::string_view(type->tp_name) == "itertools.filterfalse";
}

/// As `effect_of`, where the object is a container that the program knows the parts of.
NativeEffect effect_on_self(const NativeCall& call) {
  const NativeEffect effect = effect_of(call);
  const bool is_item =
      effect == NativeEffect::kGetItem || effect == NativeEffect::kSetItem || effect == NativeEffect::kDeleteItem;
  // `operator.getitem` of a tensor or array looks into the index.
  return is_item && call.self != nullptr && !is_container(call.self) ? NativeEffect::kOpaque : effect;
}

/// Whether `callable` is an unbound method of a class that its first argument is no instance of: `list.append({}, 1)`.
bool is_method_of_another_type(PyObject* callable, const NativeCall& call) {
  if (Py_TYPE(callable) != &PyMethodDescr_Type && Py_TYPE(callable) != &PyWrapperDescr_Type) return false;
  return call.self == nullptr || PyObject_TypeCheck(static_cast<PyObject*>(call.self), PyDescr_TYPE(callable)) == 0;
}

/// Whether a callable is an object in C of its own, such as `operator.itemgetter(1)` or `numpy.sin`: what it does when
/// it is called shows nowhere.
bool is_opaque_callable(PyObject* callable) {
  if (PyCFunction_Check(callable) || PyType_Check(callable) || PyMethod_Check(callable)) return false;
  return !is_python_class(Py_TYPE(callable)) && !is_partial(callable);
}

/// `copy.deepcopy`, what thunder has in its place for tensors, and `pickle` remember by its address what they have
/// seen. Any address will do, so none is guarded.
bool is_in_copy_module() {
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals == nullptr ? nullptr : PyDict_GetItemString(globals, "__name__");
  if (name == nullptr || !PyUnicode_Check(name)) return false;
  return is_spelled(name, "copy") || is_spelled(name, "thunder._copying") || is_spelled(name, "pickle");
}

// A substitute gets what a method is bound to as its first argument. Zero: there is none, or it leaves the call alone.
int call_substitute(const TrackerState& state, const VectorCall& call, PyObject** result) {
  const TrackerOptions& options = state.options;
  const auto found = options.substitutes.find(native_identity(call.callable));
  if (found == options.substitutes.end()) return 0;
  const auto look = [&](PyObject* argument) { return state.hooks.look_into(argument); };
  if (!std::ranges::all_of(call.all(), look)) return -1;
  const TrackerOptions::Substitute& substitute = found->second;
  PyObject* self = PyCFunction_Check(call.callable) ? PyCFunction_GET_SELF(call.callable) : nullptr;
  if (self == nullptr || PyModule_Check(self) || PyType_Check(self)) {
    return substitute(call.arguments, call.count, call.names, result);
  }
  std::vector<PyObject*> all{self};
  all.insert(all.end(), call.all().begin(), call.all().end());
  return substitute(all.data(), call.count + 1, call.names, result);
}

/// Whether a method in C, whose effect is not known, writes to its object: `SimpleNamespace.__init__`.
bool writes_to_self(PyObject* callable) {
  const std::string_view name = special_method_name(callable);
  return name == "__init__" || name == "__setstate__" || name == "__setattr__" || name == "__delattr__";
}

/// Whether this is `exec` or `eval`, by `native_identity`.
bool runs_code(const void* function) {
  static const void* const kExec = native_identity(builtin_object("exec"));
  static const void* const kEval = native_identity(builtin_object("eval"));
  return function == kExec || function == kEval;
}

/// Refuses to tell which weak references an object from outside has: guards have some, too. An object whose identity is
/// guarded has one for as long as they live, so nothing is read of it here.
bool tells_weak_references(const NativeCall& call, const TrackerState& state) {
  static const std::array kFunctions = [] {
    std::array<const void*, 2> functions{};
    const py::Ref module = py::Ref::steal(py::import_module("_weakref"));
    constexpr std::array kNames{"getweakrefs", "getweakrefcount"};
    for (std::size_t i = 0; module && i < kNames.size(); ++i) {
      const py::Ref function = py::Ref::steal(PyObject_GetAttrString(module.get(), kNames[i]));
      if (function) functions[i] = native_identity(function.get());
    }
    PyErr_Clear();
    return functions;
  }();
  if (call.count == 0 || std::ranges::find(kFunctions, call.function) == kFunctions.end()) return true;
  PyObject* object = call.arguments[0];
  Node* node = state.hooks.is_traced(object) ? node_behind(object, state) : state.provenance.find(object);
  if (node == nullptr) return true;
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: the weak references of an object of type '%.200s' from outside of the function are asked "
               "for, of which compiled programs have some, too; ask outside",
               Py_TYPE(node->object.get())->tp_name);
  return false;
}

/// Whether a template of `str.format` has fields that name attributes or items: `{0.name}`.
bool reads_parts(std::string_view text) {
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::string_view field = text.substr(at + 1);
    if (field.substr(0, field.find_first_of("{}:!")).find_first_of(".[") != std::string_view::npos) return true;
  }
  return false;
}

int status_of(PyObject* result) { return result == nullptr ? -1 : 1; }

}  // namespace

int NativeCalls::before(const VectorCall& call, PyObject** result) {
  Node* opaque = is_opaque_callable(call.callable) ? state_.provenance.find(call.callable) : nullptr;
  if (opaque != nullptr) reads_.record_state_as(*opaque, StateKind::kIdentity);
  if (const int status = call_substitute(state_, call, result); status != 0) return status;
  if (const int status = call_unwrapped(call, result); status != 0) return status;
  if (const int status = call_alias(call, result); status != 0) return status;
  if (const int status = call_by_special_method(call, result); status != 0) return status;
  if (!write_slot(call)) return -1;
  if (is_memoized(call.callable)) return call_memoized(call, result);
  if (const int status = call_getter(call, result); status != 0) return status;
  const NativeCall native = native_call(call);
  if (const int status = call_format(native, result); status != 0) return status;
  if (runs_code(native.function) || native.function == &PyDictProxy_Type) note_globals(call);
  if (const int status = call_tensor_method(call, native, result); status != 0) return status;
  reads_.record_referent(native.self != nullptr ? native.self : call.callable);
  const bool hands_on = state_.options.hand_on.contains(native.function);
  const NativeEffect effect = hands_on ? NativeEffect::kNothing : effect_on_self(native);
  if (effect >= NativeEffect::kSetItem && effect <= NativeEffect::kChange && !state_.memos.may_write(native.self))
    return -1;
  if (const int status = call_with_members(call, native, effect, result); status != 0) return status;
  if (effect == NativeEffect::kOpaque) {
    if (!tells_weak_references(native, state_)) return -1;
    if (const int status = call_is(call, native, result); status != 0) return status;
    if (const int status = call_with_changing_lists(call, result); status != 0) return status;
    if (const int status = convert(call.callable, native, result); status != 0) return status;
    if (writes_to_self(call.callable) && native.self != nullptr && !writes_.write_contents(native.self)) return -1;
    const bool has_real_tensors = read_arguments(native, call);
    if (PyErr_Occurred() != nullptr) return -1;
    if (has_real_tensors) return call_with_trace_tensors(call, result);
  }
  if (const int status = intercept(call.callable, native, result); status != 0) return status;
  if (is_method_of_another_type(call.callable, native)) return 0;  // a TypeError, before anything is read or written
  PyObject* first = native.count > 0 ? native.arguments[0] : nullptr;
  const bool asks_identity = effect == NativeEffect::kIdentity && native.count == 1;
  if (const int status = asks_identity ? tell_identity(first, result) : 0; status != 0) return status;
  if (effect == NativeEffect::kOpaque) return call_watched(call, native, result);
  const bool has_key =
      first != nullptr && native.self != nullptr && (PyDict_Check(native.self) || PyAnySet_Check(native.self));
  const py::Ref key = py::Ref::steal(has_key ? tensors_.operand(first, native.self, true) : nullptr);
  if (has_key && !key) return -1;
  if (!key || key.get() == first) return apply_effect(native, effect) ? 0 : -1;
  return call_with_key(call, native, key.get(), result);
}

// `operator.is_` and `is_not` of ints that change: these get others, which are one object or not.
int NativeCalls::call_is(const VectorCall& call, const NativeCall& native, PyObject** result) {
  const auto changes = [this](PyObject* argument) { return is_changing_int(argument, state_.hooks); };
  if (std::ranges::none_of(call.all(), changes) || call.count != 2 || identity_use(native) != IdentityUse::kSame)
    return 0;
  const int same = reads_.is_same(call.arguments[0], call.arguments[1]);
  if (same < 0) return -1;
  const std::array<PyObject*, 2> others{Py_None, same == 1 ? Py_None : Py_True};
  *result = PyObject_Vectorcall(call.callable, others.data(), others.size(), nullptr);
  return status_of(*result);
}

// The dicts that `exec` and `eval` are given, or `types.MappingProxyType`, of which the proxy of a class would be one
// from outside.
void NativeCalls::note_globals(const VectorCall& call) {
  for (PyObject* argument : call.all()) {
    if (PyDict_Check(argument)) reads_.note_globals(argument);
  }
}

// Where there are no builtins, C puts them there.
PyObject* NativeCalls::observed_globals(const NativeCall& call) const {
  if (!runs_code(call.function) || call.count < 2 || !PyDict_CheckExact(call.arguments[1])) return nullptr;
  return PyDict_GetItemString(call.arguments[1], "__builtins__") != nullptr ? call.arguments[1] : nullptr;
}

// An object of a class with a `__call__` that is a method in C: `__call__ = dict.get`.
int NativeCalls::call_alias(const VectorCall& call, PyObject** result) {
  static PyObject* const special = PyUnicode_InternFromString("__call__");
  const py::Ref method = interpreted_alias(call.callable, special);
  if (!method) return 0;
  reads_.record_type_attribute(Py_TYPE(call.callable), special);
  *result = PyObject_Vectorcall(method.get(), call.arguments, call.count, call.names);
  return *result == nullptr ? -1 : 1;
}

// `f.__call__(x)`, `type(f).__call__(f, x)`, `operator.call(f, x)`.
int NativeCalls::call_by_special_method(const VectorCall& call, PyObject** result) {
  static PyObject* const special = PyUnicode_InternFromString("__call__");
  static const void* const of_operator = [] {
    const py::Ref module = py::Ref::steal(py::import_module("_operator"));
    const py::Ref function = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "call") : nullptr);
    PyErr_Clear();  // Python 3.10 has none
    return function ? native_identity(function.get()) : nullptr;
  }();
  const MethodWrapper* wrapper = method_wrapper(call.callable);
  const bool is_descriptor = Py_TYPE(call.callable) == &PyWrapperDescr_Type;
  const bool is_operator = of_operator != nullptr && native_identity(call.callable) == of_operator;
  if (wrapper == nullptr && (call.count == 0 || !(is_descriptor || is_operator))) return 0;
  PyObject* called = wrapper != nullptr ? wrapper->self : call.arguments[0];
  PyObject* method = wrapper != nullptr ? reinterpret_cast<PyObject*>(wrapper->descriptor) : call.callable;
  // A metaclass calls that of its base.
  if (!is_operator && _PyType_Lookup(Py_TYPE(called), special) != method) return 0;
  const py::Ref function = interpreted_call(called);
  const std::size_t skipped = wrapper != nullptr ? 0 : 1;
  if (!function) return -1;
  *result = PyObject_Vectorcall(function.get(), call.arguments + skipped, call.count - skipped, call.names);
  return status_of(*result);
}

// `"{0.name}".format(item)`, `"{item.name}".format_map(table)`.
int NativeCalls::call_format(const NativeCall& native, PyObject** result) {
  static PyObject* const methods = dict_of_type(&PyUnicode_Type);
  static const void* const format = native_identity(PyDict_GetItemString(methods, "format"));
  static const void* const format_map = native_identity(PyDict_GetItemString(methods, "format_map"));
  if (native.function != format && native.function != format_map) return 0;
  const char* text = native.self != nullptr && PyUnicode_Check(native.self) ? PyUnicode_AsUTF8(native.self) : nullptr;
  if (text == nullptr || !reads_parts(text)) return PyErr_Clear(), 0;
  const bool is_map = native.function == format_map;
  if (is_map && (native.count != 1 || native.names != nullptr)) return 0;
  const py::Ref arguments = py::Ref::steal(PyTuple_New(is_map ? 0 : static_cast<Py_ssize_t>(native.count)));
  const py::Ref keywords = is_map ? py::Ref::share(native.arguments[0]) : py::Ref::steal(PyDict_New());
  if (!arguments || !keywords) return -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); ++i) {
    PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(native.arguments[i]));
  }
  for (Py_ssize_t i = 0; native.names != nullptr && i < PyTuple_GET_SIZE(native.names); ++i) {
    PyObject* value = native.arguments[native.count + static_cast<std::size_t>(i)];
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(native.names, i), value) < 0) return -1;
  }
  *result = interpreted_format(native.self, arguments.get(), keywords.get()).release();
  return status_of(*result);
}

// `Class.slot.__set__(item, value)` writes to the item.
bool NativeCalls::write_slot(const VectorCall& call) {
  const MethodWrapper* wrapper = method_wrapper(call.callable);
  if (wrapper == nullptr || Py_TYPE(wrapper->self) != &PyMemberDescr_Type || call.count == 0) return true;
  const std::string_view method = special_method_name(call.callable);
  if (method != "__set__" && method != "__delete__") return true;
  PyObject* owner = call.arguments[0];
  if (state_.provenance.find(owner) == nullptr) return true;
  PyObject* name = PyDescr_NAME(wrapper->self);
  if (_PyType_Lookup(Py_TYPE(owner), name) == wrapper->self) {
    return writes_.write_attribute(owner, name, method == "__delete__");
  }
  PyErr_Format(PyExc_NotImplementedError,
               "thunder.jit: writes to a slot of an object whose class '%.200s' has '%U' for something else",
               Py_TYPE(owner)->tp_name, name);
  return false;
}

// A method that was taken from a tensor outside of the trace: `m = x.add_`.
int NativeCalls::call_tensor_method(const VectorCall& call, const NativeCall& native, PyObject** result) {
  const bool is_bound = native.self != nullptr && native.count == call.count;
  if (!is_bound || !is_real_tensor(native.self, state_.hooks)) return 0;
  const py::Ref traced = py::Ref::steal(tensors_.present(Py_NewRef(native.self)));
  const py::Ref name = py::Ref::steal(PyObject_GetAttrString(call.callable, "__name__"));
  const py::Ref method = py::Ref::steal(traced && name ? PyObject_GetAttr(traced.get(), name.get()) : nullptr);
  return method ? call_seen({method.get(), call.arguments, call.count, call.names}, result) : -1;
}

int NativeCalls::before_python(const VectorCall& call, PyObject** result) {
  if (call.callable == nullptr) return 0;
  const auto& substitutes = state_.options.substitutes;
  if (const auto found = substitutes.find(call.callable); found != substitutes.end()) {
    return found->second(call.arguments, call.count, call.names, result);
  }
  const bool has_begun = call.arguments == nullptr;  // code in C has called it
  if (const int status = has_begun ? 0 : call_unwrapped(call, result); status != 0) return status;
  reads_.enter_unread(call.callable);
  if (!look_for_unobserved(call)) return -1;
  const bool has_real_tensors =
      std::ranges::any_of(call.all(), [this](PyObject* each) { return is_real_tensor(each, state_.hooks); });
  return has_real_tensors ? call_with_trace_tensors(call, result) : 0;
}

// The library formats what it logs or warns of in code that nobody observes.
bool NativeCalls::look_for_unobserved(const VectorCall& call) {
  if (call.arguments == nullptr || !PyFunction_Check(call.callable) || !state_.options.treatment) return true;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(call.callable));
  if (!is_native(state_.options.treatment(code))) return true;
  return std::ranges::all_of(call.all(), [this](PyObject* argument) { return state_.hooks.look_into(argument); });
}

// Methods in C of objects from outside change what nobody sees when C calls them, and functions such as `getattr` read
// it; alone or in a `functools.partial`.
py::Ref NativeCalls::seen_from_c(PyObject* callable, bool is_called) const {
  if (py::Ref getter = interpreted_getter(callable)) return getter;
  const auto is_method = [this](PyObject* function) {
    PyObject* self = PyCFunction_Check(function) ? PyCFunction_GET_SELF(function) : nullptr;
    return self != nullptr && !PyModule_Check(self) && !PyType_Check(self) && state_.provenance.find(self) != nullptr;
  };
  if (is_method(callable)) return is_called ? py::Ref() : interpreted_call(callable);
  if (!is_partial(callable)) return nullptr;
  const py::Ref function = py::Ref::steal(PyObject_GetAttrString(callable, "func"));
  if (!function) return PyErr_Clear(), nullptr;
  const bool is_known = PyCFunction_Check(function.get()) || Py_TYPE(function.get()) == &PyWrapperDescr_Type;
  const bool is_reader = is_known && effect_of({native_identity(function.get())}) != NativeEffect::kOpaque;
  return is_reader || is_method(function.get()) ? interpreted_call(callable) : nullptr;
}

// The callable that a function such as `map` gets in the place of `callable`; null: `callable` itself. A callable in C
// looks into its arguments and may write to them, so it is called by a function in Python, which is observed.
py::Ref NativeCalls::called_by_c(PyObject* callable, PyObject* caller) const {
  if (py::Ref function = seen_from_c(callable, false)) return function;
  if (callable == Py_None && is_filter(caller)) return interpreted_call(reinterpret_cast<PyObject*>(&PyBool_Type));
  const bool is_seen = PyCallable_Check(callable) == 0 || is_called_in_python(callable);
  return is_seen ? py::Ref() : interpreted_call(callable);
}

int NativeCalls::call_seen(const VectorCall& call, PyObject** result) {
  if (const int status = before(call, result); status != 0) return status;
  PyObject* value = call.make();
  after_writes(call);
  return finish(value, result);
}

void NativeCalls::after_writes(const VectorCall& call) {
  if (state_.journal.empty()) return;
  const NativeCall native = native_call(call);
  const NativeEffect effect = effect_of(native);
  if (effect >= NativeEffect::kSetItem && effect <= NativeEffect::kChange && native.self != nullptr) {
    state_.journal.after_write(native.self);
  } else {
    state_.journal.after_write();
  }
}

int NativeCalls::call_getter(const VectorCall& call, PyObject** result) {
  if (const py::Ref function = seen_from_c(call.callable, true)) {
    *result = PyObject_Vectorcall(function.get(), call.arguments, call.count, call.names);
    return status_of(*result);
  }
  const NativeCall native = native_call(call);
  const NativeEffect effect = effect_of(native);
  const bool is_looked_into = effect == NativeEffect::kOpaque || effect == NativeEffect::kContents;
  // `collections.defaultdict` calls its factory later; values by keyword are only kept.
  const std::size_t read = is_looked_into ? call.all().size() : effect == NativeEffect::kPairs ? call.count : 0;
  const bool may_call = read > 0 && identity_use(native) == IdentityUse::kMayTell;
  const std::size_t skipped = static_cast<std::size_t>(native.arguments - call.arguments);
  std::vector<py::Ref> owned;
  std::vector<PyObject*> replaced;
  for (PyObject* argument : call.all()) {
    const bool is_called = replaced.size() >= skipped && calls_argument(native, replaced.size() - skipped);
    // Functions under `functools.lru_cache` keep what they give; `MethodType` and its like keep the function.
    const bool is_read = replaced.size() < read;
    const bool is_kept = may_call && is_read && is_memoized(argument);
    py::Ref function = is_called ? called_by_c(argument, call.callable)
                       : is_kept ? interpreted_call(argument)
                       : is_read ? seen_from_c(argument, false)
                                 : py::Ref();
    replaced.push_back(function ? function.get() : argument);
    if (function) owned.push_back(std::move(function));
  }
  if (owned.empty()) return 0;
  return call_seen({call.callable, replaced.data(), call.count, call.names}, result);
}

int NativeCalls::call_unwrapped(const VectorCall& call, PyObject** result) {
  PyObject* inner = state_.options.unwrap ? state_.options.unwrap(call.callable) : nullptr;
  if (inner == nullptr) return 0;
  if (Node* node = state_.provenance.find(call.callable)) {
    reads_.record_state_as(*node, StateKind::kIdentity);
    if (state_.provenance.find(inner) == nullptr) reads_.admit_constant(inner, expression(*node));
  }
  *result = PyObject_Vectorcall(inner, call.arguments, call.count, call.names);
  return status_of(*result);
}

int NativeCalls::call_with_changing_lists(const VectorCall& call, PyObject** result) {
  const auto is_list = [](PyObject* argument) { return PyList_CheckExact(argument) != 0; };
  if (std::ranges::none_of(call.all(), is_list) || !state_.hooks.takes_sizes(call.callable)) return 0;
  std::vector<py::Ref> owned;
  std::vector<PyObject*> replaced;
  for (PyObject* argument : call.all()) {
    py::Ref list = reads_.read_changing_list(argument);
    if (PyErr_Occurred() != nullptr) return -1;
    replaced.push_back(list ? list.get() : argument);
    if (list) owned.push_back(std::move(list));
  }
  if (owned.empty()) return 0;
  return call_seen({call.callable, replaced.data(), call.count, call.names}, result);
}

int NativeCalls::call_with_trace_tensors(const VectorCall& call, PyObject** result) {
  std::vector<py::Ref> owned;
  std::vector<PyObject*> replaced{nullptr};
  // A write of the call to a copy that it was given would be lost: it is refused.
  std::vector<std::pair<PyObject*, py::Ref>> copies;
  for (PyObject* argument : call.all()) {
    owned.push_back(tensors_.substitute(argument));
    PyObject* given = owned.back().get();
    if (given == nullptr) return -1;
    replaced.push_back(given);
    if (given == argument || !(PyList_Check(given) || PyDict_Check(given))) continue;
    copies.emplace_back(given, copy_of(given, PyList_Check(given) ? Store::kList : Store::kDict));
  }
  const VectorCall seen{call.callable, replaced.data() + 1, call.count, call.names};
  int status = call_substitute(state_, seen, result);
  if (status == 0 && !PyFunction_Check(call.callable)) {
    status = intercept(call.callable, native_call(seen), result);
  }
  if (status < 0) return -1;
  if (status == 0) {
    const std::size_t count = call.count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    *result = PyObject_Vectorcall(call.callable, seen.arguments, count, call.names);
  }
  if (*result == nullptr) return -1;
  for (const auto& [given, before] : copies) {
    if (holds_same(given, before.get())) continue;
    Py_CLEAR(*result);
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: %R writes in C code to a '%.200s' of tensors from outside of the function; do it with the "
        "methods of the container",
        call.callable, Py_TYPE(given)->tp_name);
    return -1;
  }
  return 1;
}

// Code that may write to the containers among its arguments.
int NativeCalls::call_watched(const VectorCall& call, const NativeCall& native, PyObject** result) {
  bool watches = false;
  const auto watch = [&](PyObject* object) {
    Node* node = object == nullptr ? nullptr : state_.provenance.find(object);
    if (node == nullptr) return;
    if (state_kind(object) == StateKind::kBuffer) {
      py::Ref before = state_of(object, StateKind::kBuffer);
      if (!before) return;
      memory_.emplace_back(node->object, std::move(before));
    }
    watches |= !memory_.empty() || state_.journal.watch(object);
  };
  watch(native.self);
  PyObject* globals = observed_globals(native);
  for (std::size_t i = 0; i < call.count; ++i) {
    if (call.arguments[i] != globals) watch(call.arguments[i]);
  }
  if (PyErr_Occurred() != nullptr) return -1;
  if (!watches) return 0;
  PyObject* made = call_beside_memory(call);
  {
    const py::SavedError pending;
    state_.journal.end_watch();
    if (native.self != nullptr) state_.journal.after_write(native.self);
  }
  return finish(made, result);
}

PyObject* NativeCalls::call_beside_memory(const VectorCall& call) {
  const auto watched = std::exchange(memory_, {});
  py::Ref result = py::Ref::steal(call.make());
  for (const auto& [object, before] : watched) {
    {
      const py::SavedError pending;
      if (!before || has_state(object.get(), StateKind::kBuffer, before.get())) continue;
      if (restore_buffer(object.get(), before.get()) < 0) PyErr_Clear();
    }
    if (!result) continue;
    PyErr_Format(
        PyExc_NotImplementedError,
        "thunder.jit: %R writes to the memory of an object of type '%.200s' from outside of the function; write "
        "to it after the call",
        call.callable, Py_TYPE(object.get())->tp_name);
    return nullptr;
  }
  return result.release();
}

// A method of a dict or set whose first argument is another object for the program than in there.
int NativeCalls::call_with_key(const VectorCall& call, NativeCall native, PyObject* key, PyObject** result) {
  std::vector<PyObject*> replaced(call.all().begin(), call.all().end());
  const std::ptrdiff_t skipped = native.arguments - call.arguments;
  replaced[static_cast<std::size_t>(skipped)] = key;
  native.arguments = replaced.data() + skipped;
  if (!apply_effect(native, effect_of(native))) return -1;
  PyObject* value = PyObject_Vectorcall(call.callable, replaced.data(), call.count, call.names);
  state_.journal.after_write(native.self);
  return finish(value, result);
}

// The address of a tensor from outside is that of the tensor itself, not of its trace tensor; that of an int that
// changes is that of the int.
int NativeCalls::tell_identity(py::Borrowed object, PyObject** result) {
  if (is_in_copy_module()) {
    note_copied(object);
    *result = PyLong_FromVoidPtr(object);
    return status_of(*result);
  }
  if (is_changing_int(object, state_.hooks)) {
    const py::Ref plain = py::Ref::steal(PyNumber_Index(object));
    const int is_kept = plain ? is_kept_int(plain.get()) : -1;
    if (is_kept == 1) *result = PyLong_FromVoidPtr(plain.get());
    return is_kept;
  }
  Node* node = state_.hooks.is_traced(object) ? node_behind(object, state_) : nullptr;
  if (node == nullptr) return 0;
  reads_.record_state_as(*node, StateKind::kIdentity);
  *result = PyLong_FromVoidPtr(node->object.get());
  return status_of(*result);
}

/// A copy depends on which of the objects in it are one and the same, but not on which ones they are.
void NativeCalls::note_copied(py::Borrowed object) {
  constexpr std::size_t kMostPairs = 16;
  Node* node = state_.hooks.is_traced(object) ? node_behind(object, state_) : state_.provenance.find(object);
  if (node == nullptr || std::ranges::find(copied_, object, &py::Ref::get) != copied_.end()) return;
  if (copied_.size() == kMostPairs) return reads_.record_state_as(*node, StateKind::kIdentity);
  for (const py::Ref& other : copied_) reads_.examine_identity(other.get(), object);
  copied_.push_back(py::Ref::share(object));
}

int NativeCalls::intercept(PyObject* callable, const NativeCall& call, PyObject** result) {
  return state_.options.intercept ? state_.options.intercept(callable, call, result) : 0;
}

int NativeCalls::convert(PyObject* callable, const NativeCall& call, PyObject** result) {
  return state_.options.convert ? state_.options.convert(callable, call, result) : 0;
}

int NativeCalls::finish(PyObject* value, PyObject** result) {
  *result = value == nullptr ? nullptr : tensors_.present(value);
  return status_of(*result);
}

}  // namespace thunder::interpreter
