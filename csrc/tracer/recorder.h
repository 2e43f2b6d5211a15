#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

struct CustomGradient;
struct TraceState;
struct ResultTypes;
class Realizer;

/// Where in the dispatcher calls are recorded.
enum class Level : std::uint8_t {
  kTop,     ///< as the program called them, above autocast and autograd
  kBottom,  ///< below autograd: what backends execute
};

/// Builds a trace from the dispatcher calls made on a thread while a `RecordTop` or `RecordBottom` scope is active.
///
/// Program tensors are trace tensors (`trace_tensor.h`): real `at::Tensor`s without data. The trace is functional: a
/// write gives its target, and what shares memory with it, a new value; writes to inputs end the trace as `copy_`.
/// A real tensor that is not an input becomes a constant of the trace.
class Recorder {
 public:
  Recorder(std::string trace_name, std::shared_ptr<ir::TraceContext> context, Level level = Level::kTop);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// A trace tensor that stands for `real` (same metadata, `requires_grad` too) and is the next input of the trace.
  /// The same tensor gives the same trace tensor. `real` is kept alive while the recorder lives.
  at::Tensor add_input(const at::Tensor& real, std::string name);
  /// A trace tensor of the given type, the next input of the trace.
  at::Tensor add_input(ir::TypePtr type, std::string name = {});
  /// The real tensors behind the inputs, in order (undefined for those added by type).
  [[nodiscard]] const std::vector<at::Tensor>& real_inputs() const { return real_inputs_; }
  /// The trace tensor for a real one that is an input already.
  [[nodiscard]] std::optional<at::Tensor> find_input(const at::Tensor& real) const;

  /// The value that a trace tensor of this recorder stands for now. May record views anew after a write.
  ir::ValueId value_of(const at::Tensor& trace_tensor);
  /// The value to return for a trace tensor: as `value_of`, but never memory that belongs to the trace itself.
  ir::ValueId output_of(const at::Tensor& trace_tensor);
  /// Positions of the inputs that the program has written to.
  [[nodiscard]] std::vector<std::size_t> written_inputs() const;
  /// Whether something was written to the memory of the input that `trace_tensor` stands for.
  [[nodiscard]] bool is_written(const at::Tensor& trace_tensor) const;

  /// The user's line for the symbols recorded next; may be empty. Called once per recorded operation.
  std::function<ir::SourceLocation()> locate;

  /// Gives a scope that is held while a call is recorded: in it Python may be asked for lines, and Python code that
  /// runs (meta kernels) is not taken for the program's. May be empty.
  std::function<std::shared_ptr<void>()> outside_program;

  /// Refuse programs that read the data of tensors, instead of specializing on what they read.
  bool full_graph = false;
  /// Types to take for the results of `op` where they follow from data; set by replays, which have none.
  void expect_results(const c10::OperatorHandle& op, std::shared_ptr<const ResultTypes> types);

  /// Records one call; arguments on the stack become results. What the fallbacks call.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);

  /// Ends the trace, or a part of it, with a `copy_` to each input that was written to.
  void copy_written_inputs();
  /// The trace so far, with these outputs and the writes to inputs; the recorder is empty afterwards.
  [[nodiscard]] ir::Trace finish(ir::ArgumentList outputs);
  [[nodiscard]] ir::Trace& trace() { return trace_; }

 private:
  at::Tensor add_tensor(ir::TypePtr type, std::string name, bool is_input);
  at::Tensor add_constant(const at::Tensor& real);
  /// Records the backward that an autograd function of the program left on `tensor`; see custom_gradient.h.
  void adopt_gradient(const at::Tensor& tensor);
  /// `value`, whose gradient goes to `owner`: what autograd sees of a write that it does not record.
  ir::ValueId with_gradient_of(ir::ValueId value, ir::ValueId owner);
  ir::ValueId add_custom_gradient(ir::ValueId value, std::shared_ptr<CustomGradient> gradient);
  void replace_real_tensors(std::span<c10::IValue> arguments);
  at::Tensor replace_real_tensor(const at::Tensor& tensor);

  std::shared_ptr<const ResultTypes> infer_cached(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                                  Level level);
  void call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  void call_mutable(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  /// Random fills of fresh memory stay in place: the order of the numbers follows the memory's layout.
  bool call_random_fill(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  [[nodiscard]] bool is_uninitialized(const at::Tensor& tensor) const;
  std::vector<c10::IValue> record(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                  const ResultTypes& types, Level level);
  ir::ArgumentList to_arguments(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  std::vector<c10::IValue> call_by_name(const char* name, const char* overload, std::vector<c10::IValue> arguments);

  // Data dependence (data_dependence.cpp)
  Realizer& realizer();
  void require_data() const;
  c10::Scalar read_number(const at::Tensor& tensor);
  void call_reading_number(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void call_reading_lengths(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  ResultTypes infer_by_running(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  void add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected);
  void check_shapes(std::span<const c10::IValue> results);

  [[nodiscard]] bool is_input(const at::Tensor& trace_tensor) const;
  void refuse_unless_leaf(const c10::OperatorHandle& op, const at::Tensor& input) const;
  void assign(const c10::OperatorHandle& op, const at::Tensor& target, at::Tensor source, bool may_resize);
  /// `source` with the target's shape, dtype and device, in memory of its own.
  at::Tensor copy_like(const at::Tensor& target, const at::Tensor& source);
  /// `recorded`: autograd sees the write (gradients on, and not through `detach`).
  void write(const at::Tensor& target, const at::Tensor& source, bool recorded);
  void refresh(TraceState& state);
  at::Tensor scatter_into_parent(const TraceState& view, const at::Tensor& source);

  ir::Trace trace_;
  Level level_;
  std::vector<at::Tensor> real_inputs_;
  std::vector<at::Tensor> inputs_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> inputs_by_real_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> constants_by_real_;
  std::vector<at::Tensor> real_constants_;
  std::unordered_map<std::string, std::shared_ptr<const ResultTypes>> inferred_;
  std::optional<c10::OperatorHandle> expected_operator_;
  std::shared_ptr<const ResultTypes> expected_types_;
  std::unique_ptr<Realizer> realizer_;
};

/// While alive, operations of this thread on any tensor are recorded as the user called them, above autocast and
/// autograd. Inactive inside kernels that the recorder itself runs.
class RecordTop {
 public:
  explicit RecordTop(Recorder& recorder);
  ~RecordTop();
  RecordTop(const RecordTop&) = delete;
  RecordTop& operator=(const RecordTop&) = delete;

 private:
  Recorder* previous_;
  bool previously_included_;
};

/// While alive, operations of this thread on trace tensors, and factories, are recorded below autograd.
class RecordBottom {
 public:
  explicit RecordBottom(Recorder& recorder);
  ~RecordBottom();
  RecordBottom(const RecordBottom&) = delete;
  RecordBottom& operator=(const RecordBottom&) = delete;

 private:
  Recorder* previous_;
  bool previously_included_;
};

/// While alive, operations of this thread run as if nobody recorded.
class SuspendRecording {
 public:
  SuspendRecording();
  ~SuspendRecording();
  SuspendRecording(const SuspendRecording&) = delete;
  SuspendRecording& operator=(const SuspendRecording&) = delete;

 private:
  bool top_included_;
  bool bottom_included_;
};

/// While alive, operations on trace tensors run for their metadata alone: nothing is recorded.
class EvaluateOnly {
 public:
  EvaluateOnly();
  ~EvaluateOnly();
  EvaluateOnly(const EvaluateOnly&) = delete;
  EvaluateOnly& operator=(const EvaluateOnly&) = delete;

 private:
  Recorder* bottom_;
  bool top_included_;
  bool bottom_included_;
};

/// Registers the fallbacks with the dispatcher, once per process.
void init_tracer();

/// Whether a tensor is a trace tensor of any recorder.
[[nodiscard]] bool is_trace_tensor(const at::Tensor& tensor);

}  // namespace thunder::tracer
