#include "dispatch/torch_hooks.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>

#include "base/error.h"
#include "dispatch/errors.h"
#include "interpreter/interpret.h"

namespace thunder::dispatch {
namespace {

// Tensors that the tracer does not know how to stand in for.
void require_plain(const at::Tensor& tensor, PyTypeObject* type, const std::string& path) {
  const auto refuse = [&](const std::string& found, const std::string& advice) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: " + path + ": expected a dense tensor, got " + found + "; " + advice);
  };
  if (tensor.layout() != c10::kStrided) refuse("a sparse tensor", "call to_dense() before");
  if (tensor.is_quantized()) refuse("a quantized tensor", "call dequantize() before");
  if (tensor.is_nested()) refuse("a nested tensor", "call to_padded_tensor() before");
  if (tensor.is_meta()) refuse("a tensor on the meta device", "give it data: module.to_empty(device='cpu')");
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    refuse(std::string("the tensor subclass ") + type->tp_name, "convert it to a torch.Tensor before");
  }
}

}  // namespace

bool TorchHooks::is_real_tensor(PyObject* object) const {
  return is_tensor(object) && !tracer::is_trace_tensor(THPVariable_Unpack(object));
}

bool TorchHooks::is_traced(PyObject* object) const {
  return is_tensor(object) && tracer::is_trace_tensor(THPVariable_Unpack(object));
}

PyObject* TorchHooks::lift(PyObject* real_tensor, const std::string& path) {
  const interpreter::NativeScope native;
  try {
    const at::Tensor& real = THPVariable_Unpack(real_tensor);
    require_plain(real, Py_TYPE(real_tensor), path);
    py::Ref traced = py::Ref::steal(THPVariable_Wrap(recorder_.add_input(real, path)));
    if (!traced) return nullptr;
    PyTypeObject* type = Py_TYPE(real_tensor);
    // `isinstance(p, nn.Parameter)` has to hold for the stand-in of a parameter.
    if (type != Py_TYPE(traced.get())) {
      if (PyObject_SetAttrString(traced.get(), "__class__", reinterpret_cast<PyObject*>(type)) < 0) return nullptr;
    }
    const auto [place, is_new] = index_by_real_.emplace(real_tensor, inputs_.size());
    if (is_new) {
      index_by_traced_.emplace(traced.get(), inputs_.size());
      inputs_.push_back(py::Ref::share(real_tensor));
      traced_.push_back(traced);
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

std::size_t TorchHooks::input_index(PyObject* real_tensor) const { return index_by_real_.at(real_tensor); }

interpreter::ConstantKind TorchHooks::classify(PyObject* object) const {
  using interpreter::ConstantKind;
  if (THPDtype_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object) || THPQScheme_Check(object) ||
      Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(THPGeneratorClass)) {
    return ConstantKind::kIdentity;
  }
  return THPDevice_Check(object) || THPSize_Check(object) ? ConstantKind::kEquality : ConstantKind::kUnknown;
}

}  // namespace thunder::dispatch
