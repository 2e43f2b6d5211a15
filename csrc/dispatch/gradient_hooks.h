#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

#include "interpreter/tracker.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Hooks on gradients that the program registers. A backward inside runs them as eager does. For one that comes after
/// the trace, what they compute becomes a part of the trace; what cannot is refused.
class GradientHooks {
 public:
  explicit GradientHooks(tracer::Recorder& recorder) : recorder_(recorder) {}

  void add_substitutes(interpreter::TrackerOptions& options);
  /// Runs the hooks once more, on the gradients of a later backward. The program has ended, with this result.
  /// False with a Python exception set.
  [[nodiscard]] bool record(interpreter::Tracker& tracker);
  /// Refuses hooks that a backward of `outputs` would have to run and that the trace does not hold; throws.
  void require_recorded(std::span<const py::Ref> outputs) const;
  /// Refuses gradients that hooks have put into what the function returns or stores; throws.
  void require_made(const ir::ArgumentList& outputs) const;

 private:
  struct Hooked {
    decltype(torch::autograd::Edge::function) node;
    ir::SourceLocation location;  ///< where a hook was registered
  };

  int register_hook(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names,
                    PyObject** result);
  void record_all(interpreter::Tracker& tracker);

  tracer::Recorder& recorder_;
  std::vector<Hooked> hooked_;
  ir::SourceLocation current_;    ///< of the hooks being recorded
  ir::SourceLocation of_module_;  ///< where a module with a full backward hook was called last
};

}  // namespace thunder::dispatch
