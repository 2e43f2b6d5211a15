#include "interpreter/tracker_native.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_map>

namespace thunder::interpreter {
namespace {

using Effects = std::unordered_map<const void*, NativeEffect>;

// CPython's `list.__setitem__` of an instance; its layout has no public header.
struct MethodWrapper {
  PyObject_HEAD PyWrapperDescrObject* descriptor;
  PyObject* self;
};

const void* identity_of(py::Borrowed callable) {
  PyTypeObject* type = Py_TYPE(callable);
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type) {
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  }
  if (type == &PyWrapperDescr_Type) return reinterpret_cast<PyWrapperDescrObject*>(callable)->d_wrapped;
  if (type == &_PyMethodWrapper_Type) return reinterpret_cast<MethodWrapper*>(callable)->descriptor->d_wrapped;
  return callable;
}

struct Row {
  NativeEffect effect;
  std::string_view names;  ///< separated by spaces
};

void add_rows(Effects& effects, py::Borrowed owner, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    std::string_view rest = row.names;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      const py::Ref name = py::Ref::steal(PyUnicode_FromStringAndSize(rest.data(), static_cast<Py_ssize_t>(end)));
      const py::Ref member = py::Ref::steal(PyObject_GetAttr(owner, name.get()));
      if (member) effects.emplace(identity_of(member.get()), row.effect);
      PyErr_Clear();
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

PyObject* as_object(PyTypeObject& type) { return reinterpret_cast<PyObject*>(&type); }

void add_container_rows(Effects& effects) {
  using enum NativeEffect;
  add_rows(effects, as_object(PyDict_Type),
           {{kLength, "__len__"},
            {kGetItem, "__getitem__ get __contains__"},
            {kGetKeys, "keys __iter__ __reversed__"},
            {kGetContents, "items values copy __eq__ __ne__ __or__"},
            {kSetItem, "__setitem__ __delitem__"},
            {kTakeItem, "pop setdefault"},
            {kChange, "clear update popitem __ior__"}});
  add_rows(effects, as_object(PyODict_Type),
           {{kGetKeys, "keys __iter__ __reversed__"},
            {kGetContents, "items values copy __eq__ __ne__ __or__"},
            {kSetItem, "__setitem__ __delitem__"},
            {kTakeItem, "pop setdefault"},
            {kChange, "clear update popitem move_to_end __ior__"}});
  add_rows(effects, as_object(PyList_Type),
           {{kLength, "__len__"},
            {kGetItem, "__getitem__"},
            {kGetContents, "copy index count __contains__ __eq__ __ne__ __lt__ __gt__ __add__ __iter__ __reversed__"},
            {kSetItem, "__setitem__ __delitem__"},
            {kAppend, "append extend __iadd__"},
            {kChange, "clear insert pop remove reverse sort __imul__"}});
  add_rows(
      effects, as_object(PyTuple_Type),
      {{kLength, "__len__"}, {kGetItem, "__getitem__"}, {kGetContents, "index count __contains__ __eq__ __iter__"}});
  add_rows(effects, as_object(PySet_Type),
           {{kLength, "__len__"},
            {kGetContents, "copy union difference intersection issubset issuperset isdisjoint __contains__ __iter__"},
            {kChange, "add clear discard remove pop update difference_update intersection_update __ior__ __isub__"}});
  const py::Ref collections = py::Ref::steal(PyImport_ImportModule("_collections"));
  const py::Ref deque = py::Ref::steal(collections ? PyObject_GetAttrString(collections.get(), "deque") : nullptr);
  if (!deque) return PyErr_Clear();
  add_rows(
      effects, deque.get(),
      {{kLength, "__len__"},
       {kGetContents, "copy index count __contains__ __getitem__ __iter__"},
       {kChange, "append appendleft clear extend extendleft insert pop popleft remove reverse rotate __setitem__"}});
}

Effects make_effects() {
  using enum NativeEffect;
  Effects effects;
  const py::Ref builtins = py::Ref::steal(PyImport_ImportModule("builtins"));
  add_rows(effects, builtins.get(),
           {{kNothing,
             "isinstance issubclass type id callable hasattr getattr super property staticmethod classmethod object "
             "globals locals next bool print range slice"},
            {kLength, "len"},
            {kContents, "iter list tuple dict set frozenset zip enumerate map filter reversed any all"},
            {kSetAttribute, "setattr delattr"}});
  add_rows(effects, as_object(PyBaseObject_Type),
           {{kSetAttribute, "__setattr__ __delattr__"},
            {kNothing, "__getattribute__ __init__ __new__ __init_subclass__ __class__ __eq__ __ne__ __hash__"}});
  add_rows(effects, as_object(PyType_Type), {{kSetAttribute, "__setattr__ __delattr__"}, {kNothing, "__call__ mro"}});
  add_rows(effects, as_object(PyModule_Type), {{kSetAttribute, "__setattr__"}});
  add_container_rows(effects);
  return effects;
}

}  // namespace

NativeCall native_call(py::Borrowed callable, PyObject* const* arguments, std::size_t count) {
  NativeCall call{identity_of(callable), nullptr, arguments, count};
  PyTypeObject* type = Py_TYPE(callable);
  if (PyCFunction_Check(callable)) {
    call.self = PyCFunction_GET_SELF(callable);
    if (call.self != nullptr && PyModule_Check(call.self)) call.self = nullptr;
  } else if (type == &_PyMethodWrapper_Type) {
    call.self = reinterpret_cast<MethodWrapper*>(callable)->self;
  } else if ((type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) && count > 0) {
    call.self = arguments[0];
    ++call.arguments;
    --call.count;
  }
  return call;
}

NativeEffect effect_of(const NativeCall& call) {
  static const Effects effects = make_effects();
  const auto found = effects.find(call.function);
  return found == effects.end() ? NativeEffect::kOpaque : found->second;
}

}  // namespace thunder::interpreter
