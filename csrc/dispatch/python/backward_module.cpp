#include "dispatch/python/backward_module.h"

#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"

namespace thunder::dispatch {

py::Ref python_backward_function(const char* name) {
  const interpreter::NativeScope native;
  const py::Ref module = checked(py::import_module("thunder._python_backward"));
  return checked(PyObject_GetAttrString(module.get(), name));
}

py::Ref to_tuple(const std::vector<at::Tensor>& tensors) {
  py::Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    py::Ref object = checked(wrap_tensor(tensors[i]));
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), object.release());
  }
  return tuple;
}

py::Ref hooks_in(PyObject* dict) {
  const interpreter::NativeScope native;
  const py::Ref values = py::Ref::steal(PyObject_CallMethod(dict, "values", nullptr));
  return py::Ref::steal(values ? PySequence_List(values.get()) : nullptr);
}

}  // namespace thunder::dispatch
