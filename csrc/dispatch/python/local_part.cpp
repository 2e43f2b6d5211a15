#include "dispatch/python/local_part.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "autograd/node_pointer.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/shared_object.h"

namespace thunder::dispatch {
namespace {

using torch::autograd::variable_list;

/// The DTensor of a type and a spec (mesh, placements, sizes of the full tensor) with this part in this process.
py::Ref distributed_tensor(PyObject* type, PyObject* spec, const at::Tensor& part) {
  const interpreter::NativeScope native;
  // Not by a call of the type: `DTensor.__init__` does nothing but bring torch._dynamo.
  const py::Ref make = checked(PyObject_GetAttrString(type, "__new__"));
  const py::Ref local = checked(wrap_tensor(part));
  const py::Ref arguments = checked(PyTuple_Pack(3, type, local.get(), spec));
  const py::Ref keywords = checked(PyDict_New());
  if (PyDict_SetItemString(keywords.get(), "requires_grad", Py_False) < 0) throw PendingError();
  return checked(PyObject_Call(make.get(), arguments.get(), keywords.get()));
}

/// Makes DTensors of the gradients of parts.
struct LocalPartBackward final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& part = gradients.at(0);
    if (!part.defined()) return variable_list(1);
    TORCH_CHECK_NOT_IMPLEMENTED(!c10::GradMode::is_enabled() || !part.requires_grad(),
                                "thunder: second derivatives by sharded parameters are not supported; compute them "
                                "with parameters that are not sharded");
    const GilHold gil;
    try {
      const py::Ref gradient =
          distributed_tensor(static_cast<PyObject*>(type.get()), static_cast<PyObject*>(spec.get()), part);
      return {unpack_tensor(gradient.get())};
    } catch (const PendingError&) {
      throw_carrier();
    }
  }
  [[nodiscard]] std::string name() const override { return "LocalPartBackward"; }

  std::shared_ptr<void> type;
  std::shared_ptr<void> spec;
};

}  // namespace

bool is_distributed(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("_local_tensor");
  return unpack_tensor(tensor).key_set().has(c10::DispatchKey::Python) &&
         PyObject_HasAttr(reinterpret_cast<PyObject*>(Py_TYPE(tensor)), name) != 0;
}

at::Tensor stored_part(PyObject* distributed) {
  static PyObject* const name = PyUnicode_InternFromString("_local_tensor");
  return unpack_tensor(checked(PyObject_GetAttr(distributed, name)).get());
}

at::Tensor local_part(PyObject* tensor) {
  const at::Tensor& full = unpack_tensor(tensor);
  if (!is_distributed(tensor)) return full;
  at::Tensor part = stored_part(tensor);
  if (!full.requires_grad() || c10::InferenceMode::is_enabled()) return part;
  part = part.detach();
  static PyObject* const spec_name = PyUnicode_InternFromString("_spec");
  const py::Ref spec = checked(PyObject_GetAttr(tensor, spec_name));
  const auto node = autograd::make_node<LocalPartBackward>();
  node->type = interpreter::share_object(reinterpret_cast<PyObject*>(Py_TYPE(tensor)));
  node->spec = interpreter::share_object(spec.get());
  node->set_next_edges({torch::autograd::impl::gradient_edge(full)});
  torch::autograd::set_history(part, node);
  return part;
}

}  // namespace thunder::dispatch
