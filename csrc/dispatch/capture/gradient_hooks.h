#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

#include "autograd/node_pointer.h"
#include "dispatch/capture/python_backward.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Hooks on gradients that the program registers. A backward inside runs them as eager does. For one that comes after
/// the trace, what they compute becomes a part of the trace. Hooks that do something besides, and those on tensors from
/// outside, are registered by each call on the tensors that it makes or gets.
class GradientHooks {
 public:
  GradientHooks(tracer::Recorder& recorder, PythonBackwards& backwards) : recorder_(recorder), backwards_(backwards) {}

  void add_substitutes(interpreter::TrackerOptions& options);
  /// Runs the hooks once more, on the gradients of a later backward. The program has ended, with this result.
  /// False with a Python exception set.
  [[nodiscard]] bool record(interpreter::Tracker& tracker);
  /// Leaves the hooks of tensors that the program returns to each call: who hooks or retains the gradient of such a
  /// tensor afterwards comes after them. False with a Python exception set: the program is to be traced again.
  [[nodiscard]] bool leave_those_of_outputs(std::span<const py::Ref> outputs);
  /// Refuses hooks on views that are made of what they show after the computation, and thus go around it; throws.
  void require_on_computed(std::span<const py::Ref> outputs) const;
  /// Registers hooks at each call: those on tensors from outside, and those that no trace can hold.
  [[nodiscard]] bool add_effects(interpreter::StructureBuilder& builder) const;
  /// Refuses hooks that a backward of `outputs` would have to run and that the trace does not hold; throws.
  void require_recorded(std::span<const py::Ref> outputs) const;
  /// Refuses gradients that hooks have put into what the function returns or stores; throws.
  void require_made(const ir::ArgumentList& outputs) const;

 private:
  struct Hooked {
    autograd::NodePointer node;
    ir::SourceLocation location;  ///< where a hook was registered
    py::Ref tensor;
    const char* method;  ///< that registered it
    bool is_outside;
  };

  int register_hook(const char* method, PyObject* function, PyObject* const* arguments, std::size_t count,
                    PyObject* names, PyObject** result);
  void record_all();
  void set_all_apart();
  void trace_again();
  /// A trace tensor for the value and the history of a hooked tensor, which may be a view.
  [[nodiscard]] at::Tensor trace_tensor_for(const Hooked& hooked) const;

  tracer::Recorder& recorder_;
  PythonBackwards& backwards_;
  std::vector<Hooked> hooked_;
  std::vector<Hooked> on_inputs_;
  ir::SourceLocation current_;  ///< where the hook in question was registered
};

}  // namespace thunder::dispatch
