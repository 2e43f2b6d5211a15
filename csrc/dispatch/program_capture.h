#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <vector>

#include "dispatch/call/input_writes.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/overrides.h"
#include "dispatch/call/specialization.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/call/trace_options.h"
#include "dispatch/capture/array_inputs.h"
#include "dispatch/capture/custom_functions.h"
#include "dispatch/capture/data_reads.h"
#include "dispatch/capture/deferred_calls.h"
#include "dispatch/capture/end_checks.h"
#include "dispatch/capture/gradient_hooks.h"
#include "dispatch/capture/inner_backward.h"
#include "dispatch/capture/program_call.h"
#include "dispatch/capture/program_sizes.h"
#include "dispatch/capture/python_backward.h"
#include "dispatch/capture/sharp_edges.h"
#include "dispatch/capture/source_locator.h"
#include "dispatch/capture/tensor_facts.h"
#include "dispatch/capture/torch_hooks.h"
#include "dispatch/capture/torch_settings.h"
#include "dispatch/numbers/number_trace.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// One trace in the making: interprets a program, records its operations, and knows besides them all that a
/// specialization consists of before it is compiled.
class ProgramCapture final : tracer::RecordingHost {
 public:
  /// Facts that a trace must know from its beginning, as earlier attempts found them.
  struct Known {
    std::vector<const c10::StorageImpl*> shared{};
    bool live = false;  ///< see custom_functions.h
    PythonBackwards::Found backwards{};
    ProgramSizes::Known sizes{};
    bool has_plain_numbers = false;  ///< see NumberTrace
    bool operator==(const Known&) const = default;
  };

  ProgramCapture(const Traced& traced, const interpreter::CallArguments& arguments, const TraceOptions& how,
                 const Known& known);
  ~ProgramCapture() override;

  /// Runs the program, and puts back what it wrote: the computation, as it was recorded. nullopt with a Python
  /// exception set.
  [[nodiscard]] std::optional<ir::Trace> record(const compile::Options& options);
  /// Makes the computation one for all sizes that are symbols; see `ProgramSizes::settle`.
  [[nodiscard]] bool settle_sizes(ir::Trace& trace) { return sizes_.settle(trace); }
  /// Gives a specialization what is known of the program besides the computation, once.
  void fill(Specialization& specialization);
  /// The facts that this attempt found, for the next one.
  [[nodiscard]] Known known(const Known& before, bool failed) const;

  [[nodiscard]] interpreter::Tracker& tracker() { return tracker_; }
  [[nodiscard]] const ir::Trace& trace() const { return recorder_.trace(); }
  [[nodiscard]] const TorchHooks& hooks() const { return hooks_; }
  [[nodiscard]] ProgramSizes& sizes() { return sizes_; }
  [[nodiscard]] const std::shared_ptr<ir::TraceContext>& context() const { return context_; }
  /// Whether the program has been recorded.
  [[nodiscard]] bool is_recorded() const { return is_recorded_; }
  /// Where the last operation that failed was called.
  [[nodiscard]] const ir::SourceLocation& failed() const { return failed_; }
  /// Where the program is defined, once it has returned; no location before.
  [[nodiscard]] ir::SourceLocation definition() const;
  /// Whether something from outside raised an exception in the program. It may have come anywhere, and comes out of the
  /// call as if it had come before: what the program does about it says nothing of the next call.
  [[nodiscard]] bool is_interrupted() const { return tracker_.is_interrupted(); }
  /// The tensors of the trace that still exist: whoever keeps one for longer than the capture is nobody we know.
  [[nodiscard]] std::vector<tracer::WeakTensor> kept_tensors() const;

 private:
  ir::SourceLocation locate() override { return locator_.here(); }
  std::shared_ptr<void> leave_program() override;
  std::vector<at::Tensor> derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents) override;

  interpreter::TrackerOptions make_options();
  py::Ref interpret();
  py::Ref run_program();
  /// Has the trace end in failure, and the program traced again with numbers that are Python's own.
  void refuse_numbers();
  /// Refuses programs whose trace keeps something alive that eager lets die where somebody can see it.
  void require_no_seen_death();
  /// Notes the inputs whose gradient, `requires_grad` or sizes the program sets.
  void note_written_tensors();
  std::optional<ir::Trace> finish(py::Borrowed result);

  PyObject* module_;  ///< see Traced
  const interpreter::CallArguments& arguments_;
  std::shared_ptr<ir::TraceContext> context_;
  SourceLocator locator_;
  ThreadState state_;  ///< before the trace
  bool grad_mode_after_ = true;
  std::int64_t first_hook_id_ = next_hook_id();
  ir::SourceLocation failed_;
  bool has_returned_ = false;
  bool is_recorded_ = false;
  bool is_exact_;  ///< each call prints what the program prints
  SharpEdgeWatch sharp_edges_;
  CustomFunctions custom_functions_;
  TensorFacts facts_;
  tracer::Recorder recorder_;
  PythonBackwards python_backwards_;
  std::shared_ptr<NumberTrace> numbers_ = std::make_shared<NumberTrace>();
  UnreadArrays unread_arrays_{recorder_};
  DataReads reads_{numbers_, unread_arrays_};
  ArrayInputs arrays_{recorder_};
  Overrides overrides_;
  ProgramSizes sizes_;
  TorchHooks hooks_;
  InnerBackward backward_;
  GradientHooks gradient_hooks_{recorder_, python_backwards_};
  DeferredCalls deferred_{recorder_, tracker_};
  interpreter::Tracker tracker_;
  TorchSettings settings_{tracker_};
  interpreter::Structure structure_;
  InputWrites writes_;
  OutputPlan plan_;
  ProgramCall call_;
};

}  // namespace thunder::dispatch
