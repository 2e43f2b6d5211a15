#include "dispatch/capture/source_locator.h"

#include <frameobject.h>

#include <string_view>
#include <utility>

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

/// Whether a file is one of Python's own modules. Packages that are installed may lie inside of their folder.
bool is_of_python(std::string_view file) {
  static const std::string folder = folder_of("os");
  return !folder.empty() && file.starts_with(folder) &&
         file.find("-packages/", folder.size()) == std::string_view::npos;
}

}  // namespace

const std::string& torch_folder() {
  static const std::string folder = folder_of("torch");
  return folder;
}

SourceLocator::SourceLocator(std::shared_ptr<ir::TraceContext> context)
    : context_(std::move(context)), library_(torch_folder()) {}

const std::string* SourceLocator::file_of(PyCodeObject* code) {
  const auto [place, is_new] = files_.try_emplace(code, nullptr);
  if (!is_new) return place->second;
  codes_.push_back(py::Ref::share(reinterpret_cast<PyObject*>(code)));
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const std::string_view file = name;
  const bool is_library = (!library_.empty() && file.starts_with(library_)) || file.starts_with("<frozen") ||
                          is_of_python(file) || file.find("/thunder/transforms/") != std::string_view::npos ||
                          file.find("/thunder/examine/") != std::string_view::npos ||
                          file.ends_with("/thunder/profiling.py") || file.ends_with("/thunder/_python_backward.py");
  if (!is_library) place->second = context_->intern(file);
  return place->second;
}

ir::SourceLocation SourceLocator::here() {
  const py::SavedError pending;
  auto frame = py::Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* current = reinterpret_cast<PyFrameObject*>(frame.get());
    const py::Ref code = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(current)));
    if (const std::string* file = file_of(reinterpret_cast<PyCodeObject*>(code.get()))) {
      return {file, PyFrame_GetLineNumber(current)};
    }
    frame = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(current)));
  }
  return {};
}

}  // namespace thunder::dispatch
