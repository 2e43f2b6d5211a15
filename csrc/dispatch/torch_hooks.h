#pragma once

#include <torch/csrc/autograd/python_variable.h>

#include <unordered_map>

#include "interpreter/python_ref.h"
#include "interpreter/tensor_hooks.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Shows the program trace tensors in place of the tensors that come from outside.
class TorchHooks final : public interpreter::TensorHooks {
 public:
  explicit TorchHooks(tracer::Recorder& recorder) : recorder_(recorder) {}

  [[nodiscard]] bool is_real_tensor(PyObject* object) const override;
  [[nodiscard]] bool is_traced(PyObject* object) const override;
  PyObject* lift(PyObject* real_tensor, const std::string& path) override;
  PyObject* original(PyObject* traced) const override;
  [[nodiscard]] std::size_t input_index(PyObject* real_tensor) const override;
  [[nodiscard]] interpreter::ConstantKind classify(PyObject* object) const override;

  /// The tensors behind the inputs, in order.
  [[nodiscard]] const std::vector<py::Ref>& inputs() const { return inputs_; }

 private:
  tracer::Recorder& recorder_;
  std::vector<py::Ref> inputs_;
  std::unordered_map<const PyObject*, std::size_t> index_by_real_;
  std::unordered_map<const PyObject*, std::size_t> index_by_traced_;
  std::vector<py::Ref> traced_;
};

/// Whether an object is a tensor, without running a metaclass's code.
[[nodiscard]] inline bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

}  // namespace thunder::dispatch
