#include "dispatch/python/opaque_backward.h"

#include <optional>

#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/python_ref.h"
#include "transforms/opaque_backward.h"

namespace thunder::dispatch {
namespace {

std::optional<c10::OperatorName> ask_python(const c10::OperatorName& op) {
  const GilHold gil;
  const interpreter::NativeScope native;
  const py::Ref module = py::Ref::steal(py::import_module("thunder._opaque_backward"));
  const py::Ref name = py::Ref::steal(
      module ? PyObject_CallMethod(module.get(), "opaque_backward", "ss", op.name.c_str(), op.overload_name.c_str())
             : nullptr);
  const char *made, *overload;
  if (!name || (name.get() != Py_None && PyArg_ParseTuple(name.get(), "ss", &made, &overload) == 0)) {
    throw PendingError();
  }
  if (name.get() == Py_None) return std::nullopt;
  return c10::OperatorName(made, overload);
}

}  // namespace

void make_opaque_backwards_in_python() { transforms::set_opaque_backward_maker(&ask_python); }

}  // namespace thunder::dispatch
