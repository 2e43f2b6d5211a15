#include "dispatch/torch_hooks.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "base/error.h"
#include "dispatch/errors.h"
#include "dispatch/python_tensor.h"
#include "dispatch/substitutes.h"
#include "dispatch/tensor_guard.h"
#include "dispatch/trace_object.h"
#include "interpreter/interpret.h"
#include "interpreter/provenance_constant.h"
#include "tracer/trace_node.h"

namespace thunder::dispatch {
namespace {

// Tensors that the tracer does not know how to stand in for.
void require_plain(const at::Tensor& tensor, PyTypeObject* type, const std::string& path) {
  const auto refuse = [&](const std::string& found, const std::string& advice) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: " + path + ": expected a dense tensor, got " + found + "; " + advice);
  };
  if (tensor.layout() == c10::kJagged) refuse("a nested tensor", "call it on the tensors that it consists of");
  if (tensor.layout() == c10::kMkldnn) refuse("an MKL-DNN tensor", "call to_dense() before");
  if (tensor.layout() != c10::kStrided) refuse("a sparse tensor", "call to_dense() before");
  if (tensor.is_quantized()) refuse("a quantized tensor", "call dequantize() before");
  if (tensor.is_nested()) refuse("a nested tensor", "call to_padded_tensor() before");
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    refuse(std::string("the tensor subclass ") + type->tp_name, "convert it to a torch.Tensor before");
  }
  if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "cls_to_become") != 0) {
    refuse("a parameter of a lazy module that has none yet", "call the module once in eager");
  }
}

}  // namespace

bool TorchHooks::is_real_tensor(PyObject* object) const {
  if (!is_tensor(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  // A trace is never made inside of a functorch level: whoever has a level was made by the program.
  return !tracer::is_trace_tensor(tensor) && !is_functorch_wrapper(tensor);
}

bool TorchHooks::is_traced(PyObject* object) const {
  if (is_traced_number(object)) return true;
  if (!is_tensor(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  return tracer::is_trace_tensor(tensor) || is_functorch_wrapper(tensor);
}

PyObject* TorchHooks::lift(PyObject* real_tensor, const std::string& path) {
  const interpreter::NativeScope native;
  try {
    const at::Tensor& real = unpack_tensor(real_tensor);
    require_plain(real, Py_TYPE(real_tensor), path);
    py::Ref traced = py::Ref::steal(wrap_tensor(recorder_.add_input(real, path)));
    if (!traced) return nullptr;
    const at::Tensor& stand_in = unpack_tensor(traced.get());
    if (real.grad_fn() != nullptr && stand_in.is_leaf()) {
      torch::autograd::set_history(
          stand_in, tracer::make_node<tracer::OutsideNode>(real.grad_fn()->name(), recorder_.value_of(stand_in)));
    }
    PyTypeObject* type = Py_TYPE(real_tensor);
    // `isinstance(p, nn.Parameter)` has to hold for the stand-in of a parameter.
    if (type != Py_TYPE(traced.get())) {
      if (PyObject_SetAttrString(traced.get(), "__class__", reinterpret_cast<PyObject*>(type)) < 0) return nullptr;
    }
    if (const py::Ref attributes = interpreter::instance_dict(real_tensor);
        attributes && PyDict_Size(attributes.get()) > 0) {
      const py::Ref own = interpreter::instance_dict(traced.get());
      if (!own || PyDict_Update(own.get(), attributes.get()) < 0) return nullptr;
    }
    const auto [place, is_new] = index_by_real_.emplace(real_tensor, inputs_.size());
    if (is_new) {
      index_by_traced_.emplace(traced.get(), inputs_.size());
      inputs_.push_back(py::Ref::share(real_tensor));
      states_.push_back({py::Ref::share(real_tensor), traced});
    }
    return traced.release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* TorchHooks::original(PyObject* traced) const {
  const auto found = index_by_traced_.find(traced);
  return found == index_by_traced_.end() ? nullptr : Py_NewRef(inputs_[found->second].get());
}

bool TorchHooks::is_unknown_state(PyObject* traced, PyObject* name) const {
  const auto found = index_by_traced_.find(traced);
  if (found == index_by_traced_.end()) return false;
  const InputState& state = states_[found->second];
  if (PyUnicode_CompareWithASCIIString(name, "grad") == 0) return !state.knows_grad;
  return PyUnicode_CompareWithASCIIString(name, "is_leaf") == 0 && !state.knows_leaf;
}

bool TorchHooks::learn_state(PyObject* traced, PyObject* name, PyObject* value) {
  InputState& state = states_[index_by_traced_.at(traced)];
  if (PyUnicode_CompareWithASCIIString(name, "is_leaf") == 0) {
    state.knows_leaf = true;
    return true;
  }
  state.knows_grad = true;
  state.grad = py::Ref::share(value);
  if (value != Py_None) unpack_tensor(traced).mutable_grad() = unpack_tensor(value);
  return true;
}

namespace {

/// The hooks that `leaf`'s tensor has under `name`, guarded; an empty list when there are none.
std::vector<py::Ref> hooks_behind(interpreter::Tracker& tracker, py::Borrowed leaf, PyObject* name) {
  std::vector<py::Ref> hooks;
  const py::Ref dict = py::Ref::steal(tracker.read_behind(leaf, name));
  if (PyErr_Occurred() != nullptr) throw PendingError();
  if (!dict || dict.get() == Py_None) return hooks;
  if (!tracker.examine(dict.get(), interpreter::Aspect::kContents)) throw PendingError();
  PyObject *key, *hook;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.get(), &position, &key, &hook)) hooks.push_back(py::Ref::share(hook));
  return hooks;
}

}  // namespace

void TorchHooks::run_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf, at::Tensor& gradient) const {
  static PyObject* const name = PyUnicode_InternFromString("_backward_hooks");
  const py::Ref object = py::Ref::steal(wrap_tensor(leaf));
  if (!object) throw PendingError();
  for (const py::Ref& hook : hooks_behind(tracker, object.get(), name)) {
    const py::Ref argument = py::Ref::steal(wrap_tensor(gradient));
    const py::Ref result = py::Ref::steal(argument ? PyObject_CallOneArg(hook.get(), argument.get()) : nullptr);
    if (!result) throw PendingError();
    if (is_tensor(result.get())) gradient = unpack_tensor(result.get());
  }
}

void TorchHooks::run_post_accumulate_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf) const {
  static PyObject* const name = PyUnicode_InternFromString("_post_accumulate_grad_hooks");
  const py::Ref object = py::Ref::steal(wrap_tensor(leaf));
  if (!object) throw PendingError();
  for (const py::Ref& hook : hooks_behind(tracker, object.get(), name)) {
    if (!py::Ref::steal(PyObject_CallOneArg(hook.get(), object.get()))) throw PendingError();
  }
}

PyObject* TorchHooks::operand(PyObject* number, PyObject* other, bool is_key) {
  if (is_key) {
    if (is_traced_number(number)) return look_at(number);
    return look_inside(number) ? Py_NewRef(number) : nullptr;
  }
  return is_tensor(other) && is_traced(other) ? tensor_of_number(number) : Py_NewRef(number);
}

std::size_t TorchHooks::input_index(PyObject* real_tensor) const { return index_by_real_.at(real_tensor); }

std::string TorchHooks::describe(PyObject* tensor) const { return describe_tensor(unpack_tensor(tensor)); }

interpreter::ConstantKind TorchHooks::classify(PyObject* object) const {
  using interpreter::ConstantKind;
  if (trace_in(object) != nullptr) return ConstantKind::kIdentity;
  if (THPDtype_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object) || THPQScheme_Check(object) ||
      Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(THPGeneratorClass)) {
    return ConstantKind::kIdentity;
  }
  return THPDevice_Check(object) || THPSize_Check(object) ? ConstantKind::kEquality : ConstantKind::kUnknown;
}

}  // namespace thunder::dispatch
