#include "dispatch/capture/substitutes.h"

#include <algorithm>
#include <string>

#include "interpreter/loop/native_scope.h"

namespace thunder::dispatch {

py::Ref loaded_function(const char* module_name, std::string_view path) {
  // Only what the program can have imported already: looking it up must not import half of torch.
  PyObject* modules = PyImport_GetModuleDict();
  py::Ref found = py::Ref::share(PyDict_GetItemString(modules, module_name));
  while (found && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    found = py::Ref::steal(PyObject_GetAttrString(found.get(), std::string(path.substr(0, end)).c_str()));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  PyErr_Clear();
  return found;
}

py::Borrowed SubstitutedCall::find(std::size_t index, const char* name) const {
  if (index < count) return arguments[index];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0) {
      return arguments[count + static_cast<std::size_t>(i)];
    }
  }
  return nullptr;
}

void add_pickle_substitutes(interpreter::TrackerOptions& options) {
  for (const auto& [in_c, in_python] :
       {std::pair("dumps", "_dumps"), std::pair("dump", "_dump"), std::pair("Pickler", "_Pickler")}) {
    const py::Ref function = loaded_function("_pickle", in_c);
    if (!function) continue;
    options.substitute(function.get(), [name = in_python](PyObject* const* arguments, std::size_t count,
                                                          PyObject* names, PyObject** result) {
      const py::Ref equivalent = loaded_function("pickle", name);
      if (!equivalent) return PyErr_Occurred() != nullptr ? -1 : 0;
      *result = PyObject_Vectorcall(equivalent.get(), arguments, count, names);
      return *result != nullptr ? 1 : -1;
    });
  }
}

void add_device_substitutes(interpreter::TrackerOptions& options) {
  const py::Ref count = loaded_function("torch.cuda", "device_count");
  if (!count) return;
  options.substitute(count.get(), [function = count](PyObject* const* arguments, std::size_t given, PyObject* names,
                                                     PyObject** result) {
    const interpreter::NativeScope native;
    const py::Ref is_initialized = loaded_function("torch.cuda", "is_initialized");
    if (!is_initialized) return 0;
    const py::Ref answer = py::Ref::steal(PyObject_CallNoArgs(is_initialized.get()));
    if (!answer) return -1;
    if (answer.get() != Py_True) return 0;
    *result = PyObject_Vectorcall(function.get(), arguments, given, names);
    return *result != nullptr ? 1 : -1;
  });
}

}  // namespace thunder::dispatch
