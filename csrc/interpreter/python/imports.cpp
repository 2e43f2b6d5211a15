#include "interpreter/python/imports.h"

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

/// Whether the module's `__spec__` says that it is still being executed.
bool is_initializing(PyObject* module) {
  const py::Ref spec = py::Ref::steal(PyObject_GetAttrString(module, "__spec__"));
  const py::Ref flag = py::Ref::steal(spec ? PyObject_GetAttrString(spec.get(), "_initializing") : nullptr);
  const int result = flag ? PyObject_IsTrue(flag.get()) : 0;
  if (PyErr_Occurred()) PyErr_Clear();
  return result > 0;
}

/// ImportError; on 3.12 it also tells the name that the traceback's suggestion needs.
PyObject* set_import_error(PyObject* message, PyObject* package, PyObject* path, [[maybe_unused]] PyObject* name) {
  PyErr_SetImportError(message, package, path);
#if PY_VERSION_HEX >= 0x030c0000
  py::Ref exception = py::Ref::steal(take_exception());
  if (exception && PyObject_SetAttrString(exception.get(), "name_from", name) < 0) PyErr_Clear();
  if (exception) restore_exception(exception.release());
#endif
  return nullptr;
}

PyObject* raise_cannot_import(PyObject* module, PyObject* name, PyObject* package) {
  const py::Ref path = py::Ref::steal(PyModule_GetFilenameObject(module));
  const py::Ref known =
      py::Ref::steal(package != nullptr ? Py_NewRef(package) : PyUnicode_FromString("<unknown module name>"));
  if (!known) return nullptr;
  py::Ref message;
  if (!path || !PyUnicode_Check(path.get())) {
    PyErr_Clear();
    message =
        py::Ref::steal(PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, known.get()));
    return set_import_error(message.get(), package, nullptr, name);
  }
  const char* format = is_initializing(module)
                           ? "cannot import name %R from partially initialized module %R (most likely due to a "
                             "circular import) (%S)"
                           : "cannot import name %R from %R (%S)";
  message = py::Ref::steal(PyUnicode_FromFormat(format, name, known.get(), path.get()));
  return set_import_error(message.get(), package, path.get(), name);
}

/// One name of `import *`; 0 or -1.
int import_one(PyObject* module, PyObject* locals, PyObject* name, bool is_key) {
  if (!PyUnicode_Check(name)) {
    const py::Ref module_name = py::Ref::steal(PyObject_GetAttrString(module, "__name__"));
    if (!module_name) return -1;
    if (!PyUnicode_Check(module_name.get()))
      PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s",
                   Py_TYPE(module_name.get())->tp_name);
    else
      PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", is_key ? "Key" : "Item", module_name.get(),
                   is_key ? "__dict__" : "__all__", Py_TYPE(name)->tp_name);
    return -1;
  }
  if (is_key && PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '_') return 0;
  const py::Ref value = py::Ref::steal(PyObject_GetAttr(module, name));
  if (!value) return -1;
  return PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value.get())
                                   : PyObject_SetItem(locals, name, value.get());
}

}  // namespace

PyObject* import_name(PyObject* builtins, PyObject* globals, PyObject* locals, PyObject* name, PyObject* from_list,
                      PyObject* level) {
  static PyObject* key = PyUnicode_InternFromString("__import__");
  const py::Ref function = py::Ref::steal(PyObject_GetItem(builtins, key));
  if (!function) {
    if (PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* shown_locals = locals != nullptr ? locals : Py_None;
  if (function.get() == import_function()) {
    const int plain_level = as_int(level);
    if (plain_level == -1 && PyErr_Occurred()) return nullptr;
    return PyImport_ImportModuleLevelObject(name, globals, shown_locals, from_list, plain_level);
  }
  PyObject* arguments[] = {nullptr, name, globals, shown_locals, from_list, level};
  return PyObject_Vectorcall(function.get(), arguments + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

PyObject* import_from(PyObject* module, PyObject* name) {
  PyObject* value = nullptr;
  if (lookup_attribute(module, name, &value) != 0) return value;
  // A circular relative import: the submodule is in sys.modules, but not yet an attribute.
  py::Ref package = py::Ref::steal(PyObject_GetAttrString(module, "__name__"));
  if (package && !PyUnicode_Check(package.get())) package = py::Ref();
  if (package) {
    const py::Ref full_name = py::Ref::steal(PyUnicode_FromFormat("%U.%U", package.get(), name));
    if (!full_name) return nullptr;
    value = PyImport_GetModule(full_name.get());
    if (value != nullptr || PyErr_Occurred()) return value;
  }
  return raise_cannot_import(module, name, package.get());
}

int import_star(PyObject* module, PyObject* locals) {
  static PyObject* all_key = PyUnicode_InternFromString("__all__");
  static PyObject* dict_key = PyUnicode_InternFromString("__dict__");
  PyObject* found = nullptr;
  if (lookup_attribute(module, all_key, &found) < 0) return -1;
  py::Ref names = py::Ref::steal(found);
  const bool from_dict = !names;
  if (from_dict) {
    if (lookup_attribute(module, dict_key, &found) < 0) return -1;
    const py::Ref dict = py::Ref::steal(found);
    if (!dict) {
      PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
      return -1;
    }
    names = py::Ref::steal(PyMapping_Keys(dict.get()));
    if (!names) return -1;
  }
  for (Py_ssize_t i = 0;; ++i) {
    const py::Ref name = py::Ref::steal(PySequence_GetItem(names.get(), i));
    if (!name) {
      if (!PyErr_ExceptionMatches(PyExc_IndexError)) return -1;
      PyErr_Clear();
      return 0;
    }
    if (import_one(module, locals, name.get(), from_dict) < 0) return -1;
  }
}

}  // namespace thunder::interpreter
