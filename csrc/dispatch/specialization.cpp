#include "dispatch/specialization.h"

#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <utility>

#include "bridge/random.h"
#include "dispatch/errors.h"
#include "runtime/value_changed.h"

namespace thunder::dispatch {
namespace {

bool matches(const void* guards, std::size_t input, PyObject* tensor) {
  return static_cast<const TensorGuard*>(guards)[input].matches(THPVariable_Unpack(tensor));
}

/// Lets other threads run Python while alive.
class GilRelease {
 public:
  explicit GilRelease(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

using References = c10::SmallVector<py::Ref, 4>;
using Pointers = c10::SmallVector<PyObject*, 16>;

// The structure of most calls is one tensor.
PyObject* build(const Specialization& specialization, std::vector<at::Tensor>& computed, PyObject* const* inputs,
                PyObject* const* externals) {
  References owned;
  Pointers outputs;
  for (at::Tensor& tensor : computed) {
    owned.push_back(py::Ref::steal(THPVariable_Wrap(std::move(tensor))));
    if (!owned.back()) return nullptr;
    outputs.push_back(owned.back().get());
  }
  return specialization.structure.build({outputs.data(), inputs, externals});
}

}  // namespace

bool Specialization::writes_shared_memory(const std::vector<at::Tensor>& inputs) const {
  for (const std::size_t written : written_inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i != written &&
          inputs[i].storage().unsafeGetStorageImpl() == inputs[written].storage().unsafeGetStorageImpl()) {
        return true;
      }
    }
  }
  return false;
}

Specialization::Outcome Specialization::call(const ThreadState& now,
                                             const interpreter::CallArguments& arguments) const {
  if (now != state) return {kThreadStateDiffers, nullptr};
  Pointers inputs(tensors.size());
  interpreter::GuardScratch scratch;
  const std::int64_t failed = guards.run(arguments, {matches, tensors.data()}, inputs.data(), scratch);
  if (failed != interpreter::GuardProgram::kAccepted) return {failed, nullptr};

  // The registers belong to the guards of all threads: what is needed later is taken now.
  References kept;
  Pointers externals;
  for (const std::uint32_t index : structure.externals()) {
    kept.push_back(py::Ref::share(guards.loaded(index)));
    externals.push_back(kept.back().get());
  }
  for (const std::uint32_t index : returned_inputs) kept.push_back(py::Ref::share(inputs[index]));
  std::vector<at::Tensor> values;
  values.reserve(inputs.size());
  for (PyObject* input : inputs) values.push_back(THPVariable_Unpack(input));

  Outcome outcome;
  if (writes_shared_memory(values)) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "thunder.jit: the program writes in place to an input that shares memory with another input; pass "
                    "a clone of one of them");
    return outcome;
  }
  // A run that stops at a value has drawn numbers; the next candidate draws them again.
  const std::optional<at::Tensor> random = checks_values ? std::make_optional(bridge::random_state()) : std::nullopt;
  try {
    std::vector<at::Tensor> computed;
    {
      const GilRelease release(releases_gil);
      computed = computation->run(std::move(values));
    }
    outcome.result = build(*this, computed, inputs.data(), externals.data());
    if (grad_mode_after != state.grad_mode) c10::GradMode::set_enabled(grad_mode_after);
  } catch (const runtime::ValueChanged&) {
    bridge::set_random_state(*random);
    return {kValueChanged, nullptr};
  } catch (...) {
    set_python_error();
  }
  return outcome;
}

}  // namespace thunder::dispatch
