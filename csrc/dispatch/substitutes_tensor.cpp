#include "dispatch/substitutes.h"

namespace thunder::dispatch {
namespace {

py::Ref torch_function(const char* name) {
  const py::Ref module = checked(PyImport_ImportModule("torch"));
  return checked(PyObject_GetAttrString(module.get(), name));
}

/// The argument called `name`, or what `self` has.
void take_over(PyObject* keywords, const SubstitutedCall& call, const char* name) {
  py::Borrowed given = call.find(call.count, name);
  const bool is_given = given != nullptr && given != Py_None;
  const py::Ref value = is_given ? py::Ref::share(given) : checked(PyObject_GetAttrString(call.arguments[0], name));
  if (PyDict_SetItemString(keywords, name, value.get()) < 0) throw PendingError();
}

/// `tensor.new_tensor(data, dtype=…, device=…, requires_grad=…)` by `torch.tensor`.
py::Ref new_tensor(const SubstitutedCall& call) {
  py::Borrowed data = call.find(1, "data");
  if (data == nullptr) {
    PyErr_SetString(PyExc_TypeError, "new_tensor() missing 1 required positional arguments: \"data\"");
    throw PendingError();
  }
  const py::Ref keywords = checked(PyDict_New());
  take_over(keywords.get(), call, "dtype");
  take_over(keywords.get(), call, "device");
  if (py::Borrowed requires_grad = call.find(call.count, "requires_grad")) {
    PyDict_SetItemString(keywords.get(), "requires_grad", requires_grad);
  }
  const py::Ref arguments = checked(PyTuple_Pack(1, data));
  return checked(PyObject_Call(torch_function("tensor").get(), arguments.get(), keywords.get()));
}

bool are_numbers(const SubstitutedCall& call) {
  for (std::size_t i = 1; i < call.count; ++i) {
    if (!PyLong_Check(call.arguments[i])) return false;
  }
  return true;
}

/// The legacy `tensor.new(*sizes)` and `tensor.new(data)`.
py::Ref new_by_sizes_or_data(const SubstitutedCall& call) {
  const bool is_size =
      call.count == 2 && Py_TYPE(call.arguments[1]) == reinterpret_cast<PyTypeObject*>(torch_function("Size").get());
  if (call.count == 2 && !is_size && !PyLong_Check(call.arguments[1])) return new_tensor(call);
  if (!is_size && !are_numbers(call)) {
    PyErr_SetString(PyExc_TypeError, "Tensor.new: expected sizes or data");
    throw PendingError();
  }
  py::Ref sizes = py::Ref::share(is_size ? call.arguments[1] : nullptr);
  if (!sizes && call.count == 1) sizes = checked(Py_BuildValue("(i)", 0));
  if (!sizes) {
    sizes = checked(PyTuple_New(static_cast<Py_ssize_t>(call.count - 1)));
    for (std::size_t i = 1; i < call.count; ++i) {
      PyTuple_SET_ITEM(sizes.get(), static_cast<Py_ssize_t>(i - 1), Py_NewRef(call.arguments[i]));
    }
  }
  return checked(PyObject_CallMethod(call.arguments[0], "new_empty", "(O)", sizes.get()));
}

template <py::Ref (*handler)(const SubstitutedCall& call)>
int run(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  if (count == 0) return 0;
  try {
    *result = handler({arguments, count, names}).release();
    return 1;
  } catch (const PendingError&) {
    return -1;
  }
}

}  // namespace

void add_tensor_substitutes(interpreter::TrackerOptions& options) {
  if (const py::Ref method = loaded_function("torch", "Tensor.new_tensor")) {
    options.substitute(method.get(), run<&new_tensor>);
  }
  if (const py::Ref method = loaded_function("torch", "Tensor.new")) {
    options.substitute(method.get(), run<&new_by_sizes_or_data>);
  }
}

}  // namespace thunder::dispatch
