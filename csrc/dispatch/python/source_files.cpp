#include "dispatch/python/source_files.h"

#include <Python.h>

#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {
namespace {

/// Where the file of a module lies, with a slash at its end; empty where it has none.
std::string folder_of(const char* module_name) {
  const py::Ref module = py::Ref::steal(py::import_module(module_name));
  const py::Ref file = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "__file__") : nullptr);
  const char* text = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return {};
  }
  const std::string path = text;
  return path.substr(0, path.rfind('/') + 1);
}

bool lies_in(std::string_view file, const std::string& folder) { return !folder.empty() && file.starts_with(folder); }

/// Whether a file is one of Python's own modules. Packages that are installed may lie inside of their folder.
bool is_of_python(std::string_view file) {
  static const std::string folder = folder_of("os");
  return lies_in(file, folder) && file.find("-packages/", folder.size()) == std::string_view::npos;
}

}  // namespace

const std::string& torch_folder() {
  static const std::string folder = folder_of("torch");
  return folder;
}

bool is_library_file(std::string_view file) {
  return lies_in(file, torch_folder()) || file.starts_with("<frozen") || is_of_python(file) ||
         file.find("/thunder/transforms/") != std::string_view::npos ||
         file.find("/thunder/examine/") != std::string_view::npos || file.ends_with("/thunder/profiling.py") ||
         file.ends_with("/thunder/_python_backward.py");
}

bool is_own_file(std::string_view file) {
  static const std::string folder = folder_of("thunder");
  return lies_in(file, folder);
}

}  // namespace thunder::dispatch
