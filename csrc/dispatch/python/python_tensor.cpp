#include "dispatch/python/python_tensor.h"

#include <torch/csrc/autograd/python_variable.h>

namespace thunder::dispatch {

bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

const at::Tensor& unpack_tensor(PyObject* object) { return THPVariable_Unpack(object); }

PyObject* wrap_tensor(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

}  // namespace thunder::dispatch
