#include "dispatch/substitutes.h"

namespace thunder::dispatch {
namespace {

/// What PyTorch runs when nobody looks on: plain Python over the operator's functions. Null: there is none.
py::Ref plain_kernel(PyObject* higher_order_operator) {
  static PyObject* const key = [] {
    const py::Ref keys = loaded_function("torch._C", "DispatchKey.CompositeExplicitAutograd");
    return Py_XNewRef(keys.get());
  }();
  const py::Ref kernels = py::Ref::steal(PyObject_GetAttrString(higher_order_operator, "py_kernels"));
  if (key == nullptr || !kernels || !PyDict_Check(kernels.get())) return nullptr;
  return py::Ref::share(PyDict_GetItemWithError(kernels.get(), key));
}

}  // namespace

void add_higher_order_substitutes(interpreter::TrackerOptions& options) {
  const py::Ref function = loaded_function("torch._ops", "HigherOrderOperator.dispatch");
  if (!function) return;
  // `dispatch(self, key, *arguments, **keywords)`
  options.substitute(function.get(),
                     [](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                       if (count < 2) return 0;
                       const py::Ref kernel = plain_kernel(arguments[0]);
                       if (!kernel) return PyErr_Occurred() == nullptr ? 0 : -1;
                       *result = PyObject_Vectorcall(kernel.get(), arguments + 2, count - 2, names);
                       return *result == nullptr ? -1 : 1;
                     });
}

}  // namespace thunder::dispatch
