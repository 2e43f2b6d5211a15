#include "dispatch/python/errors.h"

#include <frameobject.h>
#include <opcode.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/source_files.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/slots.h"
#include "ir/location.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {
namespace {

PyObject* exception_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kRuntime:
      return PyExc_RuntimeError;
    case ErrorKind::kType:
      return PyExc_TypeError;
    case ErrorKind::kValue:
      return PyExc_ValueError;
    case ErrorKind::kNotImplemented:
      return PyExc_NotImplementedError;
  }
  return PyExc_RuntimeError;
}

void set_internal_error(const InternalError& error) {
  const py::Ref module = py::Ref::steal(py::import_module("thunder.errors"));
  const py::Ref type = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "InternalError") : nullptr);
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, error.what());
}

std::string text_of(py::Borrowed object) {
  const py::Ref text = py::Ref::steal(object == nullptr ? nullptr : PyObject_Str(object));
  const char* content = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return content == nullptr ? "" : content;
}

std::string source_line(const ir::SourceLocation& location) {
  const py::Ref module = py::Ref::steal(py::import_module("linecache"));
  const py::Ref line = py::Ref::steal(
      module ? PyObject_CallMethod(module.get(), "getline", "si", location.file->c_str(), location.line) : nullptr);
  std::string text = text_of(line.get());
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

bool is_raised_by_operations(py::Borrowed type) {
  return type == PyExc_RuntimeError || type == PyExc_NotImplementedError || type == PyExc_TypeError ||
         type == PyExc_ValueError || type == PyExc_IndexError;
}

bool passed_line(py::Borrowed traceback, const ir::SourceLocation& location) {
  for (auto* entry = reinterpret_cast<PyTracebackObject*>(traceback); entry != nullptr; entry = entry->tb_next) {
    const py::Ref code = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame)));
    const bool same_file = text_of(reinterpret_cast<PyCodeObject*>(code.get())->co_filename) == *location.file;
    const py::Ref line = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(entry), "tb_lineno"));
    if (same_file && line && PyLong_AsLong(line.get()) == location.line) return true;
  }
  return false;
}

/// Where a traceback went through the user's program last; its file is kept in `file`. No location: nowhere.
ir::SourceLocation last_user_line(py::Borrowed traceback, std::string& file) {
  ir::SourceLocation last;
  for (auto* entry = reinterpret_cast<PyTracebackObject*>(traceback); entry != nullptr; entry = entry->tb_next) {
    const py::Ref code = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame)));
    const std::string passed = text_of(reinterpret_cast<PyCodeObject*>(code.get())->co_filename);
    if (passed.empty() || is_library_file(passed) || is_own_file(passed)) continue;
    const py::Ref line = py::Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(entry), "tb_lineno"));
    file = passed;
    last = {&file, line ? static_cast<int>(PyLong_AsLong(line.get())) : 0};
    if (!line) PyErr_Clear();
  }
  return last;
}

}  // namespace

void warn_in_python(const std::string& text) {
  const GilHold gil;
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) == 0) return;
  python_error carried;
  carried.persist();
  throw carried;
}

py::Ref take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return nullptr;
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  const py::Ref owned_type = py::Ref::steal(type), owned_traceback = py::Ref::steal(traceback);
  return py::Ref::steal(value);
}

void restore_error(py::Ref error) {
  PyObject* type = Py_NewRef(PyExceptionInstance_Class(error.get()));
  PyObject* traceback = PyException_GetTraceback(error.get());
  PyErr_Restore(type, error.release(), traceback);
}

void note_caught_refusal(PyObject* exception) {
  const interpreter::NativeScope native;
  const std::string text = text_of(exception);
  // PyTorch's own checks may refuse trace tensors; they take plain ones.
  const bool is_surprise = text.find("INTERNAL ASSERT FAILED") != std::string::npos;
  if (is_surprise || text.starts_with("thunder") || tracer::says_data_was_read(text)) tracer::note_refusal(text);
}

bool is_pending_from_statement() {
  const interpreter::NativeScope native;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  auto* entry = reinterpret_cast<PyTracebackObject*>(traceback);
  while (entry != nullptr && entry->tb_next != nullptr) entry = entry->tb_next;
  bool is_raise = false;
  if (entry != nullptr) {
    const py::Ref code = py::Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame)));
    const py::Ref bytes = py::Ref::steal(PyObject_GetAttrString(code.get(), "co_code"));
    const bool is_known = bytes && entry->tb_lasti >= 0 && entry->tb_lasti < PyBytes_GET_SIZE(bytes.get());
    is_raise = is_known && static_cast<unsigned char>(PyBytes_AS_STRING(bytes.get())[entry->tb_lasti]) == RAISE_VARARGS;
    PyErr_Clear();
  }
  PyErr_Restore(type, value, traceback);
  return is_raise;
}

bool names_traced_number(PyObject* exception) {
  const interpreter::NativeScope native;
  const bool is_of_python = interpreter::is_python_class(Py_TYPE(exception));  // its `__str__` may be the program's
  return !is_of_python && text_of(exception).find("thunder._C.Traced") != std::string::npos;
}

void release_frames_of_pending() {
  const interpreter::NativeScope native;
  py::Ref pending = take_error();
  const py::Ref module = py::Ref::steal(py::import_module("traceback"));
  std::vector<py::Ref> chain;  // each once: a program may have them follow each other in a circle
  py::Ref next = py::Ref::share(pending.get());
  const auto is_next = [&](const py::Ref& known) { return known.get() == next.get(); };
  while (next && module && std::ranges::none_of(chain, is_next)) {
    const py::Ref entries = py::Ref::steal(PyException_GetTraceback(next.get()));
    const py::Ref cleared =
        py::Ref::steal(entries ? PyObject_CallMethod(module.get(), "clear_frames", "O", entries.get()) : nullptr);
    if (!cleared) PyErr_Clear();
    chain.push_back(next);
    next = py::Ref::steal(PyException_GetContext(chain.back().get()));
  }
  restore_error(std::move(pending));
}

std::string describe_error(py::Borrowed error, const ir::SourceLocation& location,
                           const ir::SourceLocation& otherwise) {
  const std::string text = std::string(Py_TYPE(error)->tp_name) + ": " + text_of(error);
  if (text.find(", line ") != std::string::npos) return text;
  if (location.file != nullptr) return text + describe_source(location);
  const py::Ref traceback = py::Ref::steal(PyException_GetTraceback(error));
  std::string file;
  const ir::SourceLocation last = last_user_line(traceback.get(), file);
  return text + describe_source(last.file != nullptr ? last : otherwise);
}

std::string describe_source(const ir::SourceLocation& location) {
  if (location.file == nullptr) return {};
  const interpreter::NativeScope native;
  return ir::describe_line(location, "\n  in ", ":\n    ") + source_line(location);
}

void add_location(const ir::SourceLocation& location, const ir::SourceLocation& otherwise) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  // Without a traceback no code of the program has raised it.
  const bool is_ours = location.file == nullptr && otherwise.file != nullptr && traceback == nullptr;
  const ir::SourceLocation& line = is_ours ? otherwise : location;
  if (line.file != nullptr && is_raised_by_operations(type) && (is_ours || passed_line(traceback, line))) {
    const std::string message = text_of(value) + describe_source(line);
    const py::Ref arguments = py::Ref::steal(Py_BuildValue("(s)", message.c_str()));
    if (!arguments || PyObject_SetAttrString(value, "args", arguments.get()) < 0) PyErr_Clear();
  }
  PyErr_Restore(type, value, traceback);
}

void set_python_error() {
  if (PyErr_Occurred() != nullptr) return;
  try {
    throw;
  } catch (const UserError& error) {
    PyErr_SetString(exception_type(error.kind()), error.what());
  } catch (const InternalError& error) {
    set_internal_error(error);
  } catch (const PendingError&) {  // nobody should have taken the exception away, and PyTorch does not know this one
    PyErr_SetString(PyExc_SystemError, "thunder: a Python exception was lost");
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace thunder::dispatch
