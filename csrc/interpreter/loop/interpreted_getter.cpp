#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/interpreted_getter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "interpreter/loop/context.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/loop/observer.h"
#include "interpreter/python/object_parts.h"
#include "interpreter/python/slots.h"

namespace thunder::interpreter {
namespace {

constexpr const char* kSource = R"(
def attrgetter(names, keywords):
    def follow(item, path):
        for name in path:
            item = getattr(item, name)
        return item
    paths = [name.split('.') for name in names]
    if len(paths) == 1:
        path, = paths
        return lambda item: follow(item, path)
    return lambda item: tuple([follow(item, path) for path in paths])

def itemgetter(keys, keywords):
    if len(keys) == 1:
        key, = keys
        return lambda item: item[key]
    return lambda item: tuple([item[key] for key in keys])

def methodcaller(arguments, keywords):
    name, *arguments = arguments
    return lambda item: getattr(item, name)(*arguments, **keywords)

def forward(function):
    return lambda *arguments, **keywords: function(*arguments, **keywords)

def format_fields(text, arguments, keywords):
    count, is_numbered = 0, None
    def number(given):
        nonlocal count, is_numbered
        if is_numbered is (given == ''):
            raise ValueError('fields with and without numbers')
        is_numbered, count = given != '', count + 1
        return given if is_numbered else count - 1
    def expand(text, depth):
        if depth == 0:
            raise ValueError('fields are nested too deep')
        parts = []
        for literal, field, spec, conversion in parse(text):
            parts.append(literal)
            if field is None:
                continue
            first, path = split(field)
            is_key = isinstance(first, str) and first != ''
            item = keywords[first] if is_key else arguments[number(first)]
            for is_name, part in path:
                item = getattr(item, part) if is_name else item[part]
            if conversion is not None:
                item = {'s': str, 'r': repr, 'a': ascii}[conversion](item)
            parts.append(format(item, expand(spec, depth - 1) if '{' in spec else spec))
        return ''.join(parts)
    return expand(text, 2)

def iterate(iterator):
    for value in iterator:
        yield value
)";

struct Getters {
  std::array<py::Ref, 3> types, makers;
  py::Ref names;  ///< the globals of all of them
  py::Ref forward, format, iterate;
};

Getters make_getters() {
  Getters getters;
  const py::Ref module = py::Ref::steal(py::import_module("_operator"));
  const py::Ref names = py::Ref::steal(PyDict_New());
  PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins());
  const py::Ref code = py::Ref::steal(Py_CompileString(kSource, "<operator>", Py_file_input));
  const py::Ref done = py::Ref::steal(code ? PyEval_EvalCode(code.get(), names.get(), names.get()) : nullptr);
  constexpr std::array kNames{"attrgetter", "itemgetter", "methodcaller"};
  for (std::size_t i = 0; module && done && i < kNames.size(); ++i) {
    getters.types[i] = py::Ref::steal(PyObject_GetAttrString(module.get(), kNames[i]));
    getters.makers[i] = py::Ref::share(PyDict_GetItemString(names.get(), kNames[i]));
  }
  if (done) getters.forward = py::Ref::share(PyDict_GetItemString(names.get(), "forward"));
  if (done) getters.format = py::Ref::share(PyDict_GetItemString(names.get(), "format_fields"));
  const py::Ref strings = py::Ref::steal(py::import_module("_string"));
  for (const auto& [name, from] : {std::pair{"parse", "formatter_parser"}, {"split", "formatter_field_name_split"}}) {
    const py::Ref function = py::Ref::steal(strings ? PyObject_GetAttrString(strings.get(), from) : nullptr);
    if (function) PyDict_SetItemString(names.get(), name, function.get());
  }
  if (done) getters.iterate = py::Ref::share(PyDict_GetItemString(names.get(), "iterate"));
  getters.names = names;
  PyErr_Clear();
  return getters;
}

const Getters& all() {
  static const Getters getters = make_getters();
  return getters;
}

/// The arguments that a getter was made with: `(positional, keywords)`.
py::Ref parameters_of(py::Borrowed getter) {
  const py::Ref reduced = py::Ref::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
  if (!reduced || PyTuple_GET_SIZE(reduced.get()) < 2) return nullptr;
  PyObject* maker = PyTuple_GET_ITEM(reduced.get(), 0);
  PyObject* arguments = PyTuple_GET_ITEM(reduced.get(), 1);
  if (PyType_Check(maker)) return py::Ref::steal(Py_BuildValue("(O{})", arguments));
  // A methodcaller with keywords: `functools.partial(methodcaller, name, **keywords), arguments`.
  const py::Ref first = py::Ref::steal(PyObject_GetAttrString(maker, "args"));
  const py::Ref keywords = py::Ref::steal(PyObject_GetAttrString(maker, "keywords"));
  const py::Ref joined = py::Ref::steal(first && keywords ? PySequence_Concat(first.get(), arguments) : nullptr);
  return py::Ref::steal(joined ? PyTuple_Pack(2, joined.get(), keywords.get()) : nullptr);
}

/// Whether a special method of a class in Python may be a method in C by another name, or a function in C.
bool may_be_alias(PyObject* method, py::Borrowed special) {
  if (method == nullptr) return false;
  const bool is_method = Py_TYPE(method) == &PyWrapperDescr_Type || Py_TYPE(method) == &PyMethodDescr_Type;
  if (is_method) return PyUnicode_Compare(PyDescr_NAME(method), special) != 0;
  return Py_TYPE(method) == &PyStaticMethod_Type || Py_TYPE(method) == &PyProperty_Type || PyCFunction_Check(method) ||
         PyMethod_Check(method) || is_partial(method);
}

/// The callable that `owner.special` gives, without an exception where there is none.
py::Ref bind_special(PyObject* method, py::Borrowed owner) {
  py::Ref bound;
  if (Py_TYPE(method) == &PyProperty_Type) {
    PyObject* getter = property_accessors(method).get;
    py::Ref seen = getter == nullptr || PyFunction_Check(getter) ? py::Ref::share(getter) : interpreted_getter(getter);
    if (!seen && getter != nullptr) seen = interpreted_call(getter);
    bound = py::Ref::steal(seen ? PyObject_CallOneArg(seen.get(), owner) : nullptr);
  } else {
    const descrgetfunc bind = Py_TYPE(method)->tp_descr_get;
    bound = bind == nullptr ? py::Ref::share(method)
                            : py::Ref::steal(bind(method, owner, reinterpret_cast<PyObject*>(Py_TYPE(owner))));
  }
  if (!bound) PyErr_Clear();
  return bound;
}

}  // namespace

py::Ref innermost_callable(py::Borrowed callable) {
  py::Ref found = py::Ref::share(callable);
  while (found && (PyMethod_Check(found.get()) || is_partial(found.get()))) {
    found = PyMethod_Check(found.get()) ? py::Ref::share(PyMethod_GET_FUNCTION(found.get()))
                                        : py::Ref::steal(PyObject_GetAttrString(found.get(), "func"));
  }
  if (!found) PyErr_Clear();
  return found;
}

bool is_called_in_python(py::Borrowed callable) {
  static PyObject* const special = PyUnicode_InternFromString("__call__");
  const py::Ref called = innermost_callable(callable);
  if (!called) return false;
  PyObject* method = PyFunction_Check(called.get()) ? called.get() : _PyType_Lookup(Py_TYPE(called.get()), special);
  return method != nullptr && PyFunction_Check(method);
}

py::Ref interpreted_alias(py::Borrowed owner, py::Borrowed special) {
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* method = is_python_class(type) ? _PyType_Lookup(type, special) : nullptr;
  if (!may_be_alias(method, special)) return nullptr;
  const py::Ref bound = bind_special(method, owner);
  if (!bound) return nullptr;
  const bool is_property = Py_TYPE(method) == &PyProperty_Type;  // its getter runs once
  return !is_property && is_called_in_python(bound.get()) ? py::Ref() : interpreted_call(bound.get());
}

bool is_alias(py::Borrowed owner, py::Borrowed special) {
  PyTypeObject* type = Py_TYPE(owner);
  PyObject* method = is_python_class(type) ? _PyType_Lookup(type, special) : nullptr;
  if (!may_be_alias(method, special)) return false;
  if (Py_TYPE(method) == &PyProperty_Type) return true;
  const py::Ref bound = bind_special(method, owner);
  return bound && !is_called_in_python(bound.get());
}

bool is_stand_in(py::Borrowed function) {
  return PyFunction_Check(function) && PyFunction_GET_GLOBALS(function) == all().names.get();
}

py::Ref behind_stand_in(py::Borrowed function) {
  PyObject* closure = is_stand_in(function) ? PyFunction_GET_CLOSURE(static_cast<PyObject*>(function)) : nullptr;
  const bool is_call = closure != nullptr && PyTuple_GET_SIZE(closure) == 1;
  return py::Ref::share(is_call ? PyCell_GET(PyTuple_GET_ITEM(closure, 0)) : static_cast<PyObject*>(function));
}

py::Ref interpreted_call(py::Borrowed function) {
  const NativeScope native;
  py::Ref result = py::Ref::steal(PyObject_CallOneArg(all().forward.get(), function));
  if (!result) PyErr_Clear();
  return result;
}

PyObject* call_from_c(PyObject* callable, PyObject* const* arguments, std::size_t flagged_count, PyObject* names) {
  Observer* observer = current_context == nullptr ? nullptr : current_context->observer;
  if (observer == nullptr) return PyObject_Vectorcall(callable, arguments, flagged_count, names);
  observer->admit(callable);
  const py::Ref function = interpreted_call(callable);
  return function ? PyObject_Vectorcall(function.get(), arguments, flagged_count, names) : nullptr;
}

py::Ref interpreted_format(py::Borrowed text, py::Borrowed arguments, py::Borrowed keywords) {
  return py::Ref::steal(PyObject_CallFunctionObjArgs(all().format.get(), static_cast<PyObject*>(text),
                                                     static_cast<PyObject*>(arguments),
                                                     static_cast<PyObject*>(keywords), nullptr));
}

py::Ref interpreted_iterator(py::Borrowed iterator) {
  return py::Ref::steal(PyObject_CallOneArg(all().iterate.get(), iterator));
}

void prepare_interpreted_getters() { static_cast<void>(all()); }

py::Ref parameters_of_getter(py::Borrowed callable) {
  const auto is_type_of = [&](const py::Ref& type) {
    return reinterpret_cast<PyObject*>(Py_TYPE(callable)) == type.get();
  };
  if (std::ranges::none_of(all().types, is_type_of)) return nullptr;
  const NativeScope native;
  py::Ref parameters = parameters_of(callable);
  if (!parameters) PyErr_Clear();
  return parameters;
}

py::Ref interpreted_getter(py::Borrowed callable) {
  const Getters& getters = all();
  for (std::size_t i = 0; i < getters.types.size(); ++i) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(callable)) != getters.types[i].get()) continue;
    const NativeScope native;
    const py::Ref parameters = parameters_of(callable);
    py::Ref function =
        py::Ref::steal(parameters ? PyObject_Call(getters.makers[i].get(), parameters.get(), nullptr) : nullptr);
    if (!function) PyErr_Clear();
    return function;
  }
  return nullptr;
}

}  // namespace thunder::interpreter
