#include "dispatch/errors.h"

#include <torch/csrc/Exceptions.h>

#include "base/error.h"
#include "interpreter/python_ref.h"

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
  const py::Ref module = py::Ref::steal(PyImport_ImportModule("thunder.errors"));
  const py::Ref type = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "InternalError") : nullptr);
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, error.what());
}

}  // namespace

void set_python_error() {
  if (PyErr_Occurred() != nullptr) return;
  try {
    throw;
  } catch (const UserError& error) {
    PyErr_SetString(exception_type(error.kind()), error.what());
  } catch (const InternalError& error) {
    set_internal_error(error);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace thunder::dispatch
