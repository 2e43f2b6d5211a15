#pragma once

#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/random.h"
#include "compile/compiler.h"
#include "dispatch/call/graph_replay.h"
#include "dispatch/call/input_writes.h"
#include "dispatch/call/output_plan.h"
#include "dispatch/call/outside_histories.h"
#include "dispatch/call/tensor_guard.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/call/trace_options.h"
#include "dispatch/call/training_graph.h"
#include "dispatch/segments/segment_path.h"
#include "interpreter/guards/guard_tree.h"
#include "interpreter/structures/structure.h"
#include "ir/trace.h"
#include "ir/trace_sizes.h"

namespace thunder::dispatch {

/// One trace of a callable, compiled, with the conditions under which it may run. Immutable.
struct Specialization {
  ThreadState state;
  interpreter::GuardProgram guards;
  std::vector<TensorGuard> tensors;
  std::shared_ptr<compile::Compiled> computation;  ///< may be another one's, too (equal_program.h)
  std::unique_ptr<GraphReplay> graph;              ///< null: its kernels are launched one by one
  std::shared_ptr<TrainingGraph> training_graph;   ///< likewise, with gradients
  std::optional<std::size_t> fingerprint;          ///< hash of the trace of `computation`, where that may be shared
  interpreter::Structure structure;
  /// An input of the computation: a tensor that the guards find, by number, or one that a transform added.
  struct Taken {
    std::uint32_t source = 0;
    at::Tensor held;  ///< in the place of `source`, where it is defined
  };
  std::vector<Taken> taken;                    ///< empty: what the guards find, as it comes
  std::vector<ir::TypePtr> guarded_types;      ///< by tensor that the guards find; empty: as the computation's inputs
  std::vector<std::uint32_t> returned_inputs;  ///< inputs that the structure hands out again, or views of them
  InputWrites writes;
  OutsideHistories histories;
  OutputPlan plan;
  std::vector<ir::SymbolSource> symbols;  ///< where those are read that `plan` computes with; empty: it needs none
  /// Inputs of the computation, behind the others: strides of those, as ints (number_input.h).
  struct Stride {
    std::uint32_t input = 0;
    std::uint32_t dim = 0;
  };
  std::vector<Stride> strides;
  std::vector<std::uint32_t> new_leaves;  ///< inputs on which the program calls requires_grad_()
  /// Running statistics that are written to before an operation that may raise an error.
  std::vector<std::uint32_t> statistics;
  bool releases_gil = false;
  bool has_symbols = false;                    ///< sizes of the computation are symbols: it says itself which it is for
  std::vector<std::string> size_symbols{};     ///< as people write them: `s0: x.shape[0]`
  std::vector<std::string> size_conditions{};  ///< without which a call is another specialization's
  std::vector<std::string> pinned_sizes{};     ///< needed as numbers in place of symbols, with the line
  bool checks_values = false;  ///< the program may stop at a value other than the one observed while tracing
  bridge::RandomSources random{};
  /// Under these guards the callable could not be traced: it is called as it is, and there is no computation.
  bool runs_eager = false;
  /// The program had looked at data before that: with other data it may be another specialization's.
  bool is_last_resort = false;
  bool counts_hooks = false;                        ///< holds for one number of the next hook
  std::shared_ptr<const ir::TraceContext> context;  ///< keeps the names of files that guards tell
  bool grad_mode_after = true;
  double trace_seconds = 0;

  enum class Status : std::uint8_t {
    kDone,           ///< `result`, or null with a Python exception set
    kMemoryDiffers,  ///< inputs share memory in another way
    kSizesDiffer,    ///< the computation is not for these sizes
    kValueChanged,   ///< a number or shape read from data is another one; nothing has been written
    kRaised,         ///< a Python exception is set; nothing has been written
  };
  struct Outcome {
    Status status = Status::kDone;
    PyObject* result = nullptr;
  };
  /// Runs in the place of `computation` if the program looks at data: walked together with other paths, see
  /// `GuardedSet`.
  SegmentPath path;
  std::vector<std::uint32_t> number_outputs;  ///< outputs that the program holds as Python numbers

  /// Whether results may get a history: as now, or by gradients that the program itself switches on.
  [[nodiscard]] bool makes_history() const { return c10::GradMode::is_enabled() || !state.grad_mode; }
  /// Runs the computation on what an accepting run of the guards found; `index` is this one's number in the tree.
  [[nodiscard]] Outcome run(const interpreter::GuardTree& tree, const interpreter::GuardRun& found,
                            std::size_t index) const;
};

/// One call of a specialization: made from an accepting run of the guards, then `take_inputs`, the computation,
/// `finish`.
class SpecializationCall {
 public:
  SpecializationCall(const Specialization& specialization, const interpreter::GuardTree& tree,
                     const interpreter::GuardRun& found, std::size_t index);
  /// Whether inputs share memory, and were computed from each other, as when the trace was made.
  [[nodiscard]] bool memory_matches() const {
    return specialization_.writes.match(values_) && specialization_.histories.match(values_);
  }
  /// Whether the computation is for inputs of these sizes. To be asked before `take_inputs`.
  [[nodiscard]] bool sizes_match() const {
    return !specialization_.has_symbols || specialization_.computation->is_for(values_);
  }
  [[nodiscard]] std::vector<at::Tensor> take_inputs();
  /// Undoes what `take_inputs` did to the inputs, where another run follows.
  void take_back() const;
  /// Whether the computation may have written to an input since `take_inputs`, or the program's effects have begun.
  [[nodiscard]] bool may_have_written() const {
    return effects_begun_ || !versions_ || sum_of_versions(written_) != versions_;
  }
  /// Takes the values of symbols, by index, that a walk has found; zero: it found none.
  void add_symbols(std::span<const std::int64_t> values);
  /// The call's result, or null with a Python exception set.
  [[nodiscard]] PyObject* finish(std::vector<at::Tensor> computed);

 private:
  using References = c10::SmallVector<py::Ref, 4>;
  using Pointers = c10::SmallVector<PyObject*, 16>;

  /// Edges to the inputs behind a result that is spent.
  [[nodiscard]] torch::autograd::edge_list edges_behind_raising(std::uint32_t computed) const;
  /// The Python object for what the computation gives at a position; null with a Python exception set.
  [[nodiscard]] static py::Ref wrap(at::Tensor computed, bool is_number);
  /// The views of the plan, in its order.
  [[nodiscard]] std::vector<at::Tensor> make_views(const std::vector<at::Tensor>& computed) const;
  /// One object for each output of the structure; false with a Python exception set.
  [[nodiscard]] bool make_outputs(std::vector<at::Tensor>& computed, References& outputs) const;
  [[nodiscard]] bool is_number(std::size_t computed) const;

  /// The values of the symbols, by index.
  void read_symbols();

  const Specialization& specialization_;
  bool effects_begun_ = false;
  std::vector<std::int64_t> symbols_;
  Pointers inputs_;
  Pointers externals_;
  References kept_;  ///< registers belong to the guards of all threads: what is needed later is taken at once
  std::vector<at::Tensor> values_;
  std::vector<NewHistory> with_new_history_;
  std::vector<at::Tensor> written_;
  std::vector<std::pair<at::Tensor, at::Tensor>> statistics_;  ///< with copies of what they hold
  std::optional<std::uint64_t> versions_;                      ///< `sum_of_versions(written_)` before the computation
};

/// The result of tracing a call. When it failed, a Python exception is set.
struct TraceOutcome {
  /// After a failure: one that runs eager code, or null where what was read does not tell that it would fail again.
  std::shared_ptr<const Specialization> made;
  bool may_run_eager = false;     ///< a failure that says nothing of what eager code would do
  bool is_disturbed = false;      ///< by what another thread wrote while the program was traced
  ir::SourceLocation location;    ///< where the operation that failed was called
  ir::SourceLocation definition;  ///< the line of the program's `def`, where it had returned; `location` is better
  std::shared_ptr<const ir::TraceContext> context;  ///< keeps the names of files
};

/// The callable that is compiled. Borrowed.
struct Traced {
  PyObject* callable;
  /// The module whose parameters transforms may have replaced: the callable itself, or the one that it is a part or a
  /// method of.
  PyObject* module;
};

/// Traces a callable for these arguments and compiles the trace. Everything that the program wrote is rolled back:
/// running the specialization repeats it. `others` are the callable's specializations.
[[nodiscard]] TraceOutcome specialize(const Traced& traced, const interpreter::CallArguments& arguments,
                                      std::span<const std::shared_ptr<const Specialization>> others,
                                      const compile::Options& options, const TraceOptions& how);

/// Whether this thread traces now: compiled functions are then called as what they wrap.
[[nodiscard]] bool is_tracing();

}  // namespace thunder::dispatch
