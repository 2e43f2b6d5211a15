#include "interpreter/python/cpython_compat.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "interpreter/loop/intrinsics.h"
#include "interpreter/loop/observe.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {

namespace {

/// The arguments of one call by the vectorcall convention, without the offset flag.
struct Call {
  PyObject* callable;
  PyObject* const* arguments;
  std::size_t count;  ///< positional ones
  PyObject* names;

  [[nodiscard]] std::size_t total() const {
    return count + (names != nullptr ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0);
  }
  [[nodiscard]] PyObject* run() const { return PyObject_Vectorcall(callable, arguments, count, names); }
};

PyObject* call_observed(Context& context, const Call& call);

/// `function(self, …)` for the call of a bound method or of an object with `__call__`.
PyObject* call_with_self(Context& context, const Call& call, PyObject* function, PyObject* self) {
  std::vector<PyObject*> arguments(call.total() + 1);
  arguments[0] = self;
  std::copy_n(call.arguments, call.total(), arguments.begin() + 1);
  return call_observed(context, {function, arguments.data(), call.count + 1, call.names});
}

/// The number itself for the first argument of an unbound method in C, `float.hex(number)`, where that stands for one:
/// the method takes numbers alone. Null, with or without an exception: the call is another one.
py::Ref number_as_self(Observer& observer, const Call& call) {
  const PyTypeObject* type = Py_TYPE(call.callable);
  const bool is_unbound = (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) && call.count > 0;
  if (!is_unbound || !observer.stands_for_number(call.arguments[0])) return nullptr;
  return py::Ref::steal(observer.plain_number(call.arguments[0]));
}

/// The call with another first argument.
PyObject* call_with_first(Context& context, const Call& call, PyObject* first) {
  std::vector<PyObject*> arguments(call.arguments, call.arguments + call.total());
  arguments[0] = first;
  return call_observed(context, {call.callable, arguments.data(), call.count, call.names});
}

PyObject* call_function(Context& context, const Call& call) {
  PyObject* result = nullptr;
  auto* arguments = const_cast<PyObject**>(call.arguments);
  if (observed_enter(context, call.callable, arguments, call.count, call.names, &result)) return result;
  result = call.run();
  context.announced = nullptr;
  return result;
}

/// Whether this is `__build_class__`, or `type.__new__` of a metaclass.
bool makes_class(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (name == "__build_class__") return true;
  PyObject* self = PyCFunction_GET_SELF(callable);
  return name == "__new__" && self != nullptr && PyType_Check(self) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self), &PyType_Type) != 0;
}

/// Whether a call of this class runs Python code that the interpreter sees, or nothing that looks at arguments.
bool constructs_by_python(PyTypeObject* type, const Call& call) {
  static PyObject* new_name = PyUnicode_InternFromString("__new__");
  static PyObject* init_name = PyUnicode_InternFromString("__init__");
  static PyObject* call_name = PyUnicode_InternFromString("__call__");
  if (has_python_method(Py_TYPE(type), call_name)) return true;
  if (!is_python_class(type)) return false;
  PyObject* make = _PyType_Lookup(type, new_name);
  return call.total() == 0 || has_python_method(type, init_name) ||
         (make != nullptr && Py_TYPE(make) == &PyStaticMethod_Type);
}

/// The arguments of a call as they come together from several places.
class Arguments {
 public:
  /// Steals `value`; false for null, with its exception.
  bool add(PyObject* value) {
    owned_.push_back(py::Ref::steal(value));
    return value != nullptr;
  }
  /// A keyword argument, in the place of one of that name.
  bool add(PyObject* name, PyObject* value) {
    const py::Ref owned = py::Ref::steal(value);
    if (!keywords_) keywords_ = py::Ref::steal(PyDict_New());
    return owned && keywords_ && PyDict_SetItem(keywords_.get(), name, owned.get()) == 0;
  }
  [[nodiscard]] PyObject* call(Context& context, PyObject* callable) const {
    std::vector<PyObject*> values;
    for (const py::Ref& each : owned_) values.push_back(each.get());
    const std::size_t count = values.size();
    if (!keywords_) return call_observed(context, {callable, values.data(), count, nullptr});
    PyObject *name, *value;
    for (Py_ssize_t position = 0; PyDict_Next(keywords_.get(), &position, &name, &value) != 0;) values.push_back(value);
    const py::Ref names = py::Ref::steal(PySequence_Tuple(keywords_.get()));
    return names ? call_observed(context, {callable, values.data(), count, names.get()}) : nullptr;
  }

 private:
  std::vector<py::Ref> owned_;
  py::Ref keywords_;
};

bool add_items(Observer& observer, PyObject* tuple, Arguments& arguments) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const py::Ref index = py::Ref::steal(PyLong_FromSsize_t(i));
    if (!index || !arguments.add(observer.read_item(tuple, index.get(), Py_NewRef(PyTuple_GET_ITEM(tuple, i)))))
      return false;
  }
  return true;
}

/// Calls what a `functools.partial` calls, so that what the function in C does is seen, too.
PyObject* call_partial(Context& context, const Call& call) {
  Observer& observer = *context.observer;
  const auto part = [&](const char* text) {
    const py::Ref name = py::Ref::steal(PyUnicode_InternFromString(text));
    return py::Ref::steal(name ? observed_get_attribute(observer, call.callable, name.get()) : nullptr);
  };
  const py::Ref function = part("func");
  const py::Ref own = function ? part("args") : nullptr;
  const py::Ref keywords = own ? part("keywords") : nullptr;
  Arguments arguments;
  if (!keywords || !add_items(observer, own.get(), arguments)) return nullptr;
  for (std::size_t i = 0; i < call.count; ++i) arguments.add(Py_NewRef(call.arguments[i]));
  PyObject *name, *value;
  for (Py_ssize_t position = 0; PyDict_Next(keywords.get(), &position, &name, &value) != 0;) {
    if (!arguments.add(name, observer.read_item(keywords.get(), name, Py_NewRef(value)))) return nullptr;
  }
  for (std::size_t i = call.count; i < call.total(); ++i) {
    PyObject* each = PyTuple_GET_ITEM(call.names, static_cast<Py_ssize_t>(i - call.count));
    if (!arguments.add(each, Py_NewRef(call.arguments[i]))) return nullptr;
  }
  return arguments.call(context, function.get());
}

PyObject* call_observed(Context& context, const Call& call) {
  static PyObject* call_name = PyUnicode_InternFromString("__call__");
  PyObject* callable = call.callable;
  if (PyFunction_Check(callable)) return call_function(context, call);
  if (PyWeakref_CheckProxy(callable)) {
    return on_referent(*context.observer, callable, [&](PyObject* object) {
      return call_observed(context, {object, call.arguments, call.count, call.names});
    });
  }
  if (PyInstanceMethod_Check(callable)) {  // a method of pybind11, taken from its class
    return call_observed(context, {PyInstanceMethod_GET_FUNCTION(callable), call.arguments, call.count, call.names});
  }
  if (Py_TYPE(callable) == &PyMethod_Type)
    return call_with_self(context, call, PyMethod_GET_FUNCTION(callable), PyMethod_GET_SELF(callable));
  if (is_partial(callable)) return call_partial(context, call);
  if (py::Ref number = number_as_self(*context.observer, call)) return call_with_first(context, call, number.get());
  if (PyErr_Occurred() != nullptr) return nullptr;
  PyObject* self = nullptr;
  const IntrinsicRow* row = call.names == nullptr ? find_intrinsic(callable, &self) : nullptr;
  if (row != nullptr) {
    const std::size_t count = call.count + (self != nullptr ? 1 : 0);
    const bool is_method = self == nullptr && Py_TYPE(callable) == &PyWrapperDescr_Type && count > 0;
    const bool has_type = !is_method || PyObject_TypeCheck(call.arguments[0], PyDescr_TYPE(callable)) != 0;
    if (has_type && count >= row->least && count <= row->most) {
      PyObject* arguments[4] = {self};
      std::copy_n(call.arguments, call.count, arguments + (self != nullptr ? 1 : 0));
      return row->function({context, arguments, count, callable, self != nullptr});
    }
  }
  if (PyType_Check(callable)) {
    context.observer->construct(reinterpret_cast<PyTypeObject*>(callable));
    const bool is_seen = callable == reinterpret_cast<PyObject*>(&PySuper_Type) ||
                         constructs_by_python(reinterpret_cast<PyTypeObject*>(callable), call);
    PyObject* object =
        is_seen ? call.run()
                : observed_native_call(*context.observer, call.callable, call.arguments, call.count, call.names);
    if (object != nullptr) context.observer->made(object);
    return object;
  }
  PyObject* method = _PyType_Lookup(Py_TYPE(callable), call_name);
  if (method != nullptr && PyFunction_Check(method)) {
    const py::Ref owned = py::Ref::share(method);
    return call_with_self(context, call, method, callable);
  }
  if (!observed_look_up(*context.observer, callable, "__call__")) return nullptr;
  return observed_native_call(*context.observer, call.callable, call.arguments, call.count, call.names);
}

/// Everything that a function which nobody observes may see in its arguments; false with an exception set.
bool read_arguments(Observer& observer, PyObject* const* arguments, std::size_t count, PyObject* names) {
  const std::size_t total = count + (names != nullptr ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0);
  return std::all_of(arguments, arguments + total, [&](PyObject* argument) {
    return static_cast<bool>(py::Ref::steal(observed_given(observer, argument)));
  });
}

}  // namespace

PyObject* observed_native_call(Observer& observer, PyObject* callable, PyObject* const* arguments, std::size_t count,
                               PyObject* names) {
  PyObject* result = nullptr;
  const int status = observer.before_native_call(callable, arguments, count, names, &result);
  if (status < 0) return nullptr;
  if (status == 0) {
    result = PyObject_Vectorcall(callable, arguments, count, names);
    if (result == nullptr) return nullptr;
    result = observer.after_native_call(callable, arguments, count, names, result);
  }
  if (result != nullptr && makes_class(callable)) observer.made(result);
  return result;
}

bool observed_enter(Context& context, PyObject* function, PyObject** arguments, std::size_t count, PyObject* names,
                    PyObject** result) {
  const int status = context.observer->before_python_call(function, arguments, count, names, result);
  if (status != 0) {
    if (status < 0) *result = nullptr;
    return true;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (const Treatment treatment = context.observer->treatment(code); is_native(treatment)) {
    const bool is_read = read_arguments(*context.observer, arguments, count, names);
    const NativeFunctionScope native(treatment);
    *result = is_read ? PyObject_Vectorcall(function, arguments, count, names) : nullptr;
    return true;
  }
  if (count > 0) context.observer->enter_method(code, arguments, count);
  context.announced = function;
  return false;
}

bool observed_arguments(Observer& observer, PyObject** locals, const PyCodeObject* code) {
  // A key of a dict keeps its hash, which tells of a tensor which object it is.
  if (PyUnicode_CompareWithASCIIString(code->co_name, "__hash__") == 0) return true;
  return std::all_of(locals, locals + code->co_argcount + code->co_kwonlyargcount, [&](PyObject*& argument) {
    if (argument == nullptr) return true;
    argument = observed_receive(observer, argument);
    return argument != nullptr;
  });
}

PyObject* observed_call(Context& context, PyObject* callable, PyObject** arguments, std::size_t count,
                        PyObject* names) {
  return call_observed(context, {callable, arguments, count, names});
}

PyObject* observed_call_spread(Context& context, PyObject* callable, PyObject* arguments, PyObject* keywords) {
  Arguments given;
  if (!observed_examine(*context.observer, arguments, Aspect::kLength) ||
      !add_items(*context.observer, arguments, given))
    return nullptr;
  PyObject *name, *value;
  for (Py_ssize_t position = 0; keywords != nullptr && PyDict_Next(keywords, &position, &name, &value) != 0;) {
    if (!PyUnicode_Check(name)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      return nullptr;
    }
    if (!given.add(name, observed_receive(*context.observer, Py_NewRef(value)))) return nullptr;
  }
  return given.call(context, callable);
}

}  // namespace thunder::interpreter
