#include <c10/core/impl/LocalDispatchKeySet.h>

#include "dispatch/capture/substitutes.h"

namespace thunder::dispatch {
namespace {

/// The kernel that PyTorch runs when no mode or transform is active: plain Python over the operator's functions. Null:
/// there is none.
py::Ref plain_kernel(PyObject* higher_order_operator) {
  static PyObject* const key = [] {
    const py::Ref keys = loaded_function("torch._C", "DispatchKey.CompositeExplicitAutograd");
    return Py_XNewRef(keys.get());
  }();
  const py::Ref kernels = py::Ref::steal(PyObject_GetAttrString(higher_order_operator, "py_kernels"));
  if (key == nullptr || !kernels || !PyDict_Check(kernels.get())) return nullptr;
  return py::Ref::share(PyDict_GetItemWithError(kernels.get(), key));
}

/// Operators without one (`custom_function_call`) are for the transform of `torch.func` that is at work.
py::Ref kernel_of_transform() {
  if (!c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return nullptr;
  return loaded_function("torch._functorch.pyfunctorch", "dispatch_functorch");
}

int dispatch(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  if (count < 2) return 0;
  if (const py::Ref kernel = plain_kernel(arguments[0])) {
    *result = PyObject_Vectorcall(kernel.get(), arguments + 2, count - 2, names);
    return *result == nullptr ? -1 : 1;
  }
  if (PyErr_Occurred() != nullptr) return -1;
  const py::Ref kernel = kernel_of_transform();
  if (!kernel) return 0;
  const py::Ref positional = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count - 2)));
  const py::Ref keywords = py::Ref::steal(PyDict_New());
  if (!positional || !keywords) return -1;
  for (std::size_t i = 2; i < count; ++i) {
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i - 2), Py_NewRef(arguments[i]));
  }
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), arguments[count + static_cast<std::size_t>(i)]) <
        0) {
      return -1;
    }
  }
  *result = PyObject_CallFunctionObjArgs(kernel.get(), arguments[0], positional.get(), keywords.get(), nullptr);
  return *result == nullptr ? -1 : 1;
}

}  // namespace

void add_higher_order_substitutes(interpreter::TrackerOptions& options) {
  const py::Ref function = loaded_function("torch._ops", "HigherOrderOperator.dispatch");
  if (!function) return;
  // `dispatch(self, key, *arguments, **keywords)`
  options.substitute(function.get(), dispatch);
}

}  // namespace thunder::dispatch
