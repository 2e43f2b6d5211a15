#include "dispatch/capture/end_checks.h"

#include <vector>

#include "base/error.h"
#include "dispatch/call/output_plan.h"
#include "interpreter/python/python_ref.h"
#include "transforms/functorch_layer.h"

namespace thunder::dispatch {

void refuse_change(const std::string& change) {
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: the function leaves " + change + " changed; set it outside");
}

void require_restored(const ThreadState& before) {
  ThreadState after = ThreadState::now();
  after.grad_mode = before.grad_mode;
  if (after == before && !has_unknown_layers()) return;
  const std::vector<ThreadState::Entry> was = before.entries(), is = after.entries();
  std::string change = "a mode";
  for (std::size_t i = 0; i < was.size(); ++i) {
    if (was[i].value != is[i].value) change = was[i].expression;
  }
  refuse_change(change);
}

void require_same_variables(const interpreter::Tracker& tracker) {
  if (tracker.parts().reads_same_variables()) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: a part under torch.utils.checkpoint, or a hook or backward, reads a variable of the "
                  "function around it that is assigned anew afterwards; give it as an argument, or as a default");
}

void require_plain_output(PyObject* output) {
  const py::Ref module = py::Ref::steal(py::import_module("torch"));
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(output));
  if (!module || type == plain_tensor_type()) return;
  const py::Ref base = py::Ref::steal(PyObject_GetAttrString(module.get(), "_C"));
  const py::Ref off =
      py::Ref::steal(base ? PyObject_GetAttrString(base.get(), "_disabled_torch_function_impl") : nullptr);
  const py::Ref hook = py::Ref::steal(PyObject_GetAttrString(type, "__torch_function__"));
  if (off && hook.get() == off.get()) return;
  PyErr_Clear();
  throw UserError(ErrorKind::kNotImplemented,
                  std::string("thunder.jit: expected results that are plain tensors, got the ") + "tensor subclass " +
                      Py_TYPE(output)->tp_name + "; convert with tensor.as_subclass(torch.Tensor)");
}

}  // namespace thunder::dispatch
