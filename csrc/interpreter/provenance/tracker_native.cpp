#include "interpreter/python/cpython_compat.h"

#include "interpreter/provenance/tracker_native.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "interpreter/provenance/containers.h"
#include "interpreter/provenance/opaque_state.h"
#include "interpreter/python/method_wrapper.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

using Effects = std::unordered_map<const void*, NativeEffect>;

struct Row {
  NativeEffect effect;
  std::string_view names;  ///< separated by spaces
};

/// Calls `visit(member)` for the attributes, of those that are named, that `owner` has.
template <typename Visit>
void for_each_member(py::Borrowed owner, std::string_view names, Visit&& visit) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    const py::Ref name = py::Ref::steal(PyUnicode_FromStringAndSize(names.data(), static_cast<Py_ssize_t>(end)));
    const py::Ref member = py::Ref::steal(PyObject_GetAttr(owner, name.get()));
    if (member) visit(member.get());
    PyErr_Clear();
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

void add_rows(Effects& effects, py::Borrowed owner, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    for_each_member(owner, row.names, [&](PyObject* member) { effects.emplace(native_identity(member), row.effect); });
  }
}

PyObject* as_object(PyTypeObject& type) { return reinterpret_cast<PyObject*>(&type); }

void add_container_rows(Effects& effects) {
  using enum NativeEffect;
  for (PyTypeObject* type : {&PyDict_Type, &PyODict_Type}) {
    add_rows(effects, as_object(*type),
             {{kLength, "__len__"},
              {kGetItem, "__getitem__ get"},
              {kHasItem, "__contains__"},
              {kGetKeys, "keys __iter__ __reversed__"},
              {kGetContents, "items values copy __copy__ __or__"},
              {kCompare, "__eq__ __ne__"},
              {kSetItem, "__setitem__"},
              {kDeleteItem, "__delitem__"},
              {kPopItem, "pop"},
              {kSetDefault, "setdefault"},
              {kUpdate, "update __init__ __ior__"},
              {kChange, "clear popitem move_to_end"}});
  }
  add_rows(effects, as_object(PyList_Type),
           {{kLength, "__len__"},
            {kGetItem, "__getitem__"},
            {kGetContents, "copy __add__ __mul__ __rmul__ __iter__ __reversed__"},
            {kCompare, "index count __contains__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__"},
            {kSetItem, "__setitem__"},
            {kDeleteItem, "__delitem__"},
            {kAppendOne, "append"},
            {kAppend, "extend __iadd__"},
            {kCompareAndChange, "remove sort"},
            {kChange, "clear insert pop reverse __imul__ __init__"}});
  add_rows(effects, as_object(PyTuple_Type),
           {{kLength, "__len__"},
            {kGetItem, "__getitem__"},
            {kGetContents, "__add__ __iter__"},
            {kCompare, "index count __contains__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__"}});
  add_rows(effects, as_object(PySet_Type),
           {{kLength, "__len__"},
            {kHasItem, "__contains__"},
            {kGetContents, "copy union difference intersection issubset issuperset isdisjoint __iter__"},
            {kAdd, "add"},
            {kDiscard, "discard"},
            {kChange,
             "clear remove pop update difference_update intersection_update symmetric_difference_update __ior__ "
             "__iand__ __isub__ __ixor__ __init__"}});
  const py::Ref collections = py::Ref::steal(py::import_module("_collections"));
  const py::Ref default_dict =
      py::Ref::steal(collections ? PyObject_GetAttrString(collections.get(), "defaultdict") : nullptr);
  const py::Ref deque = py::Ref::steal(collections ? PyObject_GetAttrString(collections.get(), "deque") : nullptr);
  if (!default_dict || !deque) return PyErr_Clear();
  add_rows(effects, default_dict.get(), {{kGetContents, "copy __copy__ __or__"}, {kUpdate, "__init__"}});
  add_rows(effects, deque.get(),
           {{kLength, "__len__"},
            {kGetContents, "copy __copy__ __getitem__ __iter__ __reversed__ __add__"},
            {kCompare, "index count __contains__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__"},
            {kAppendOne, "append"},
            {kAppend, "extend __iadd__"},
            {kCompareAndChange, "remove"},
            {kChange,
             "appendleft clear extendleft insert pop popleft reverse rotate __setitem__ __delitem__ __imul__ "
             "__init__"}});
}

Effects make_effects() {
  using enum NativeEffect;
  Effects effects;
  const py::Ref builtins = py::Ref::steal(py::import_module("builtins"));
  add_rows(effects, builtins.get(),
           {{kNothing,
             "isinstance issubclass type hasattr getattr super property staticmethod classmethod object "
             "locals next bool print range slice"},
            {kIdentity, "id"},
            {kHash, "hash"},
            {kCallable, "callable"},
            {kNames, "dir"},
            {kDictOf, "vars"},
            {kGlobals, "globals"},
            {kLength, "len"},
            {kContents, "iter list tuple zip enumerate map filter reversed"},
            {kPairs, "dict"},
            {kSetAttribute, "setattr delattr"}});
  add_rows(effects, as_object(PyBaseObject_Type),
           {{kSetAttribute, "__setattr__ __delattr__"},
            {kState, "__reduce_ex__ __reduce__ __getstate__"},
            {kNothing, "__getattribute__ __init__ __new__ __init_subclass__ __class__"},
            {kCompare, "__eq__ __ne__"},
            {kHash, "__hash__"}});
  add_rows(effects, as_object(PyType_Type),
           {{kSetAttribute, "__setattr__ __delattr__"},
            {kNothing, "__call__ __instancecheck__ __subclasscheck__ mro"},
            {kSubclasses, "__subclasses__"}});
  add_rows(effects, as_object(PyModule_Type), {{kSetAttribute, "__setattr__"}});
  for (PyTypeObject* type : {&PyFunction_Type, &PyMethodDescr_Type, &PyWrapperDescr_Type}) {
    add_rows(effects, as_object(*type), {{kNothing, "__get__"}});
  }
  add_rows(effects, as_object(PyContext_Type), {{kNothing, "run"}});
  add_container_rows(effects);
  const py::Ref collections = py::Ref::steal(py::import_module("_collections"));
  add_rows(effects, collections.get(), {{kPairs, "OrderedDict defaultdict"}});
  const py::Ref types = py::Ref::steal(py::import_module("types"));
  add_rows(effects, types.get(), {{kPairs, "SimpleNamespace"}, {kNothing, "MappingProxyType"}});
  const py::Ref operators = py::Ref::steal(py::import_module("_operator"));
  add_rows(effects, operators.get(), {{kSetItem, "setitem"}, {kDeleteItem, "delitem"}, {kGetItem, "getitem"}});
  return effects;
}

struct UseRow {
  IdentityUse use;
  const char* module;
  std::string_view names;  ///< separated by spaces
};

using IdentityUses = std::unordered_map<const void*, IdentityUse>;

// An exception keeps what it is made of.
void add_exceptions(IdentityUses& uses) {
  PyObject *name, *member;
  Py_ssize_t position = 0;
  while (PyDict_Next(PyEval_GetBuiltins(), &position, &name, &member) != 0) {
    if (PyExceptionClass_Check(member)) uses.emplace(member, IdentityUse::kNone);
  }
}

IdentityUses make_identity_uses() {
  using enum IdentityUse;
  constexpr std::array kRows{
      UseRow{kNone, "builtins", "sorted min max sum any all exec eval"},
      UseRow{kAsks, "builtins", "repr ascii str format int float complex abs divmod pow round hex oct bin"},
      UseRow{
          kAsks, "_operator",
          "abs add and_ floordiv iadd iand ifloordiv ilshift imatmul imod imul index inv invert ior ipow irshift isub "
          "itruediv ixor lshift matmul mod mul neg not_ or_ pos pow rshift sub truediv truth xor"},
      UseRow{
          kNone, "itertools",
          "accumulate chain combinations compress count cycle dropwhile filterfalse islice permutations product repeat "
          "starmap takewhile tee zip_longest pairwise"},
      UseRow{kNone, "functools", "partial reduce"},
      UseRow{kNone, "types", "MethodType CellType"},
      UseRow{kNone, "collections", "deque"},
      UseRow{kNone, "operator", "attrgetter itemgetter methodcaller"},
      UseRow{kNone, "_abc", "_abc_instancecheck _abc_subclasscheck"},
      UseRow{kNone, "_operator", "concat iconcat"},
      UseRow{kHashes, "builtins", "set frozenset"},
      UseRow{kHashes, "collections", "_count_elements"},
      UseRow{kCompares, "_bisect", "bisect bisect_left bisect_right insort insort_left insort_right"},
      UseRow{kCompares, "_heapq", "heapify heappop heappush heappushpop heapreplace"},
      UseRow{kCompares, "itertools", "groupby"},
      UseRow{kCompares, "_operator", "eq ne lt le gt ge contains countOf indexOf"},
      UseRow{kRefers, "_weakref", "ref proxy getweakrefcount getweakrefs"},
      UseRow{kSame, "_operator", "is_ is_not"},
  };
  IdentityUses uses;
  for (const UseRow& row : kRows) {
    const py::Ref module = py::Ref::steal(py::import_module(row.module));
    if (module)
      for_each_member(module.get(), row.names,
                      [&](PyObject* member) { uses.emplace(native_identity(member), row.use); });
    PyErr_Clear();
  }
  const py::Ref from_keys = py::Ref::steal(PyObject_GetAttrString(as_object(PyDict_Type), "fromkeys"));
  uses.emplace(native_identity(from_keys.get()), kHashesFirst);
  for_each_member(as_object(PyUnicode_Type), "format",
                  [&](PyObject* made) { uses.emplace(native_identity(made), kAsks); });
  for_each_member(as_object(PyBaseObject_Type), "__str__ __format__",
                  [&](PyObject* made) { uses.emplace(native_identity(made), kAsks); });
  for_each_member(as_object(PyBaseObject_Type), "__repr__",
                  [&](PyObject* made) { uses.emplace(native_identity(made), kCompares); });
  for_each_member(as_object(_PyWeakref_RefType), "__init__",
                  [&](PyObject* made) { uses.emplace(native_identity(made), kRefers); });
  add_exceptions(uses);
  const py::Ref itertools = py::Ref::steal(py::import_module("itertools"));
  const py::Ref chain = py::Ref::steal(PyObject_GetAttrString(itertools.get(), "chain"));
  for_each_member(chain.get(), "from_iterable", [&](PyObject* made) { uses.emplace(native_identity(made), kNone); });
  constexpr std::string_view kOfSets =
      "__init__ union difference intersection symmetric_difference issubset update difference_update "
      "intersection_update symmetric_difference_update";
  for (PyTypeObject* type : {&PySet_Type, &PyFrozenSet_Type}) {
    for_each_member(as_object(*type), kOfSets, [&](PyObject* method) {
      if (Py_TYPE(method) == &PyMethodDescr_Type || type == &PySet_Type) uses.emplace(native_identity(method), kHashes);
    });
  }
  return uses;
}

const IdentityUses& identity_uses() {
  static const IdentityUses rows = make_identity_uses();
  return rows;
}

}  // namespace

// Setting and deleting are one function in C (`__setitem__` and `__delitem__`): a method that deletes is the
// descriptor.
static const void* identity_of_slot(const PyWrapperDescrObject* descriptor) {
  const bool deletes = std::string_view(descriptor->d_base->name).starts_with("__del");
  return deletes ? static_cast<const void*>(descriptor) : descriptor->d_wrapped;
}

const void* native_identity(py::Borrowed callable) {
  PyTypeObject* type = Py_TYPE(callable);
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  }
  if (type == &PyWrapperDescr_Type) return identity_of_slot(reinterpret_cast<PyWrapperDescrObject*>(callable));
  if (const MethodWrapper* wrapper = method_wrapper(callable)) return identity_of_slot(wrapper->descriptor);
  return callable;
}

/// Whether a function stands for a method of its first argument: `operator.setitem`.
static bool is_operator(const void* function) {
  static const std::array<const void*, 3> operators = [] {
    const py::Ref module = py::Ref::steal(py::import_module("_operator"));
    const auto find = [&](const char* name) {
      const py::Ref member = py::Ref::steal(PyObject_GetAttrString(module.get(), name));
      return native_identity(member.get());
    };
    return std::array{find("setitem"), find("delitem"), find("getitem")};
  }();
  return std::ranges::find(operators, function) != operators.end();
}

/// The container in C by whose constructor a class in Python, which derives from it, makes its instances; null for all
/// other callables.
static PyTypeObject* constructing_base(PyObject* callable) {
  if (!PyType_Check(callable)) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(callable);
  if (!is_container_class(type) || !is_python_class(type)) return nullptr;
  PyTypeObject* base = native_base(type);
  const bool is_called_alike = Py_TYPE(type)->tp_call == PyType_Type.tp_call;
  return is_called_alike && type->tp_new == base->tp_new && type->tp_init == base->tp_init ? base : nullptr;
}

NativeCall native_call(const VectorCall& made) {
  const auto& [callable, arguments, count, names] = made;
  NativeCall call{native_identity(callable), nullptr, arguments, count, names};
  PyTypeObject* type = Py_TYPE(callable);
  if (const PyTypeObject* base = constructing_base(callable)) call.function = base;
  if (PyCFunction_Check(callable)) {
    call.self = PyCFunction_GET_SELF(callable);
    if (call.self != nullptr && PyModule_Check(call.self)) call.self = nullptr;
    if (call.self == nullptr && count > 0 && is_operator(call.function)) {
      call.self = arguments[0];
      ++call.arguments;
      --call.count;
    }
  } else if (const MethodWrapper* wrapper = method_wrapper(callable)) {
    call.self = wrapper->self;
  } else if ((type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) && count > 0) {
    call.self = arguments[0];
    ++call.arguments;
    --call.count;
  }
  return call;
}

namespace {

const Effects& effects() {
  static const Effects rows = make_effects();
  return rows;
}

/// The positions of the arguments that functions call; the arguments `key` and `func` are called, too.
using Callers = std::unordered_map<const void*, std::size_t>;

constexpr std::size_t kByKeyword = static_cast<std::size_t>(-1);

Callers make_callers() {
  struct CallerRow {
    const char* module;
    const char* path;
    std::size_t position;
  };
  constexpr std::array kRows{CallerRow{"builtins", "map", 0},
                             CallerRow{"builtins", "filter", 0},
                             CallerRow{"builtins", "max", kByKeyword},
                             CallerRow{"builtins", "min", kByKeyword},
                             CallerRow{"builtins", "sorted", kByKeyword},
                             CallerRow{"_functools", "reduce", 0},
                             CallerRow{"itertools", "accumulate", 1},
                             CallerRow{"itertools", "dropwhile", 0},
                             CallerRow{"itertools", "filterfalse", 0},
                             CallerRow{"itertools", "groupby", 1},
                             CallerRow{"itertools", "starmap", 0},
                             CallerRow{"itertools", "takewhile", 0}};
  Callers callers;
  for (const CallerRow& row : kRows) {
    const py::Ref module = py::Ref::steal(py::import_module(row.module));
    const py::Ref member = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), row.path) : nullptr);
    if (member) callers.emplace(native_identity(member.get()), row.position);
    PyErr_Clear();
  }
  const py::Ref sort = py::Ref::steal(PyObject_GetAttrString(as_object(PyList_Type), "sort"));
  callers.emplace(native_identity(sort.get()), kByKeyword);
  const py::Ref run = py::Ref::steal(PyObject_GetAttrString(as_object(PyContext_Type), "run"));
  callers.emplace(native_identity(run.get()), 0);
  return callers;
}

const Callers& callers() {
  static const Callers rows = make_callers();
  return rows;
}

}  // namespace

bool calls_argument(const NativeCall& call, std::size_t index) {
  const auto found = callers().find(call.function);
  if (found == callers().end()) return false;
  if (index < call.count) return index == found->second;
  PyObject* name = PyTuple_GET_ITEM(call.names, static_cast<Py_ssize_t>(index - call.count));
  return PyUnicode_CompareWithASCIIString(name, "key") == 0 || PyUnicode_CompareWithASCIIString(name, "func") == 0;
}

void prepare_native_effects() {
  static_cast<void>(effects());
  static_cast<void>(callers());
  static_cast<void>(identity_uses());
}

IdentityUse identity_use(const NativeCall& call) {
  const auto found = identity_uses().find(call.function);
  if (found != identity_uses().end()) return found->second;
  // `tuple.__new__`: all types share one function.
  const bool is_of_sequence = call.self == as_object(PyTuple_Type) || call.self == as_object(PyList_Type);
  if (call.self == as_object(_PyWeakref_RefType)) return IdentityUse::kRefers;
  return is_of_sequence ? IdentityUse::kNone : IdentityUse::kMayTell;
}

NativeEffect effect_of(const NativeCall& call) {
  const auto found = effects().find(call.function);
  return found == effects().end() ? NativeEffect::kOpaque : found->second;
}

}  // namespace thunder::interpreter
