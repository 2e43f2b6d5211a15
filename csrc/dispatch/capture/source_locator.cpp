#include "dispatch/capture/source_locator.h"

#include <frameobject.h>

#include <utility>

#include "dispatch/python/gil.h"
#include "dispatch/python/source_files.h"

namespace thunder::dispatch {

SourceLocator::SourceLocator(std::shared_ptr<ir::TraceContext> context) : context_(std::move(context)) {}

const std::string* SourceLocator::file_of(PyCodeObject* code) {
  const auto [place, is_new] = files_.try_emplace(code, nullptr);
  if (!is_new) return place->second;
  codes_.push_back(py::Ref::share(reinterpret_cast<PyObject*>(code)));
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  if (!is_library_file(name)) place->second = context_->intern(name);
  return place->second;
}

ir::SourceLocation SourceLocator::here() {
  const GilHold gil;  // PyTorch's operators run without
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
