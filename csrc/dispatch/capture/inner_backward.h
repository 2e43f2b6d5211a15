#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "dispatch/call/outside_histories.h"
#include "dispatch/capture/python_backward.h"
#include "dispatch/capture/torch_hooks.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"
#include "transforms/inner_gradient.h"

namespace thunder::dispatch {

/// `backward()` and `torch.autograd.grad` called by a program, and the `.grad` of tensors that it reads and writes.
class InnerBackward {
 public:
  InnerBackward(tracer::Recorder& recorder, TorchHooks& hooks)
      : gradient_(recorder), recorder_(recorder), hooks_(hooks) {}

  /// Sends PyTorch's entry point to its engine here.
  void add_substitutes(interpreter::TrackerOptions& options, interpreter::Tracker& tracker);
  /// See `tracer::RecordingHost::derive`.
  std::vector<at::Tensor> derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents);
  /// Repeats at each call what the program did to the `.grad` and `requires_grad` of tensors.
  /// False with a Python exception set.
  [[nodiscard]] bool add_effects(interpreter::StructureBuilder& builder) const;
  /// Refuses writes to inputs that retain their gradients.
  void require_nothing_retained(interpreter::Tracker& tracker) const;
  /// Nodes behind outputs through which a backward raises in eager, since it would read what the program has written
  /// over since it was used. Refuses outputs with such a node whose backward does not raise in each case; `failed` is
  /// where that was used then.
  std::unordered_set<const torch::autograd::Node*> find_overwritten(std::span<const py::Ref> outputs,
                                                                    const PythonBackwards& functions,
                                                                    ir::SourceLocation& failed);
  /// The inputs that later calls must not have computed from each other.
  [[nodiscard]] const OutsideHistories& histories() const { return histories_; }

 private:
  [[nodiscard]] bool has_unknown_history(const at::Tensor& traced) const;
  [[nodiscard]] bool reads_written(torch::autograd::Node& node, const PythonBackwards& functions);
  struct Call;

  void require_leaves(std::span<const py::Ref> outputs) const;
  PyObject* run(interpreter::Tracker& tracker, const Call& call);
  void require_plain_gradient(interpreter::Tracker& tracker, const at::Tensor& leaf);
  void accumulate(interpreter::Tracker& tracker, const at::Tensor& leaf);
  void require_separate_histories(const Call& call);
  void require_no_hooks_behind(interpreter::Tracker& tracker, const at::Tensor& input);

  transforms::InnerGradient gradient_;
  /// Gradients in the recorders at other sizes.
  std::unordered_map<tracer::Recording*, transforms::InnerGradient> gradients_at_sizes_;
  tracer::Recorder& recorder_;
  TorchHooks& hooks_;
  OutsideHistories histories_;
};

}  // namespace thunder::dispatch
