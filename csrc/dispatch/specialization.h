#pragma once

#include <memory>
#include <vector>

#include "compile/compiler.h"
#include "dispatch/tensor_guard.h"
#include "dispatch/thread_state.h"
#include "interpreter/guard_program.h"
#include "interpreter/structure.h"

namespace thunder::dispatch {

/// One trace of a callable, compiled, with the conditions under which it may run. Immutable but for the guard
/// program's memory of versions, which the GIL protects.
struct Specialization {
  ThreadState state;
  interpreter::GuardProgram guards;
  std::vector<TensorGuard> tensors;
  std::shared_ptr<compile::Compiled> computation;
  interpreter::Structure structure;
  std::vector<std::uint32_t> returned_inputs;  ///< inputs that the structure hands out again
  std::vector<std::size_t> written_inputs;
  bool releases_gil = false;
  bool checks_values = false;  ///< the program may stop at a value other than the one met while tracing
  bool grad_mode_after = true;
  double trace_seconds = 0;

  /// Whether the guards hold, and then the call's result or null with a Python exception set.
  struct Outcome {
    std::int64_t failed_guard = interpreter::GuardProgram::kAccepted;
    PyObject* result = nullptr;
  };
  static constexpr std::int64_t kThreadStateDiffers = -2;
  static constexpr std::int64_t kValueChanged = -3;

  /// Whether the trace, which takes inputs for separate memory, would be wrong for these.
  [[nodiscard]] bool writes_shared_memory(const std::vector<at::Tensor>& inputs) const;
  [[nodiscard]] Outcome call(const ThreadState& now, const interpreter::CallArguments& arguments) const;
};

/// Traces `callable` for these arguments and compiles the trace. Everything that the program wrote is rolled back:
/// running the specialization repeats it. Null with a Python exception set.
[[nodiscard]] std::shared_ptr<const Specialization> specialize(PyObject* callable,
                                                               const interpreter::CallArguments& arguments,
                                                               const compile::Options& options, bool full_graph);

/// Whether this thread traces now: compiled functions are then called as what they wrap.
[[nodiscard]] bool is_tracing();

}  // namespace thunder::dispatch
