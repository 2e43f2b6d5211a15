#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "tracer/adopted_gradients.h"
#include "tracer/array_memory.h"
#include "tracer/autograd_history.h"
#include "tracer/data_access.h"
#include "tracer/input_memory.h"
#include "tracer/recording.h"
#include "tracer/result_inference.h"
#include "tracer/tensor_table.h"
#include "tracer/tensor_writes.h"

namespace thunder::tracer {

/// Settings of the process that operators follow when they run.
struct NumberSettings {
  caffe2::TypeMeta default_dtype;
  bool deterministic = false;
  [[nodiscard]] static NumberSettings now();
  bool operator==(const NumberSettings&) const = default;
};

/// Builds a trace from the dispatcher calls made on a thread while a `RecordTop` or `RecordBottom` scope is active.
///
/// Program tensors are trace tensors (`trace_tensor.h`): real `at::Tensor`s without data. The trace is functional: a
/// write gives its target, and what shares memory with it, a new value; writes to inputs end the trace as `copy_`.
/// A real tensor that is not an input becomes a constant of the trace, or an input captured from around.
///
/// This class records calls (recorder_calls.cpp) and knows which value a tensor stands for (recorder.cpp). What is
/// known of the trace besides is kept by its members, each about one matter.
class Recorder final : public Recording {
 public:
  /// Records into an empty trace, under the settings of the trace that is recorded on this thread, or those of now.
  explicit Recorder(ir::Trace trace, RecordingHost& starter = RecordingHost::whole_program());

  const NumberSettings settings;  ///< that the trace holds for
  TensorTable tensors{*this};
  InputMemory memory{*this, tensors};
  ArrayMemory arrays;
  DataAccess data{*this, tensors};
  ResultInference inference{level(), data};
  AutogradHistory history{*this, tensors};
  AdoptedGradients gradients{*this, tensors};
  TensorWrites writes{*this, tensors, memory, history, gradients};

  /// A trace tensor that stands for `real` and is the next input of the trace. The same tensor gives the same one.
  at::Tensor add_input(const at::Tensor& real, std::string name);
  /// One that looks otherwise to the program: as `seen`.
  at::Tensor add_input(const at::Tensor& real, ir::TypePtr seen, std::string name);
  /// A trace tensor of the given type, the next input of the trace.
  at::Tensor add_input(ir::TypePtr type, std::string name = {});
  at::Tensor trace_tensor_of(const at::Tensor& tensor) override;
  ir::ValueId value_of(const at::Tensor& trace_tensor) override;
  at::Tensor constant_of(ir::ValueId number) override { return data.constant_of(number); }
  /// The value to return for a trace tensor: never memory that belongs to the trace itself.
  ir::ValueId output_of(const at::Tensor& trace_tensor);
  /// The value to return for a trace tensor of which views are made outside of the trace: laid out as recorded.
  ir::ValueId viewed_output_of(const at::Tensor& trace_tensor);

  /// Records one call, for the fallbacks; arguments on the stack become results.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  void call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) override;
  /// Runs a composite's own code, whose parts are recorded. Where it reads the data of integers (positions, lengths),
  /// the trace holds for these.
  void call_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  std::vector<c10::IValue> call_by_name(const char* name, const char* overload,
                                        std::vector<c10::IValue> arguments) override;
  /// Adds the symbol of a call whose results are of these types.
  std::vector<c10::IValue> record(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                  const ResultTypes& types, Level level);

  /// Keeps the recorder of a part of the program alive as long as this one.
  void keep(std::shared_ptr<Recorder> part) { parts_.push_back(std::move(part)); }
  /// Adds the trace tensors that somebody keeps, those of parts of the program too.
  void add_kept_tensors(std::vector<WeakTensor>& kept) const;
  /// The trace so far, with these outputs and the writes to inputs; the recorder is empty afterwards.
  [[nodiscard]] ir::Trace finish(ir::ArgumentList outputs);

 private:
  ir::ArgumentList to_arguments(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  /// `tensor`, with the strides that it has here also when it runs: kernels may give others than they say.
  at::Tensor with_recorded_strides(const at::Tensor& tensor);
  /// Makes arguments of `as_strided` and its like say what they mean in the memory that the trace has.
  void lay_out_memory(std::vector<c10::IValue>& arguments);
  /// Records that each run of the trace makes a random generator.
  void call_making_generator(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  [[nodiscard]] std::optional<ir::ValueId> find_generator(const c10::IValue& value) const;

  std::vector<std::shared_ptr<Recorder>> parts_;
  std::vector<std::pair<at::Generator, ir::ValueId>> generators_;  ///< values of those made at each run
};

/// The recorder of this thread's innermost `RecordTop` or `RecordBottom`; null outside of one.
[[nodiscard]] Recorder* recorder_on_top();
[[nodiscard]] Recorder* recorder_at_bottom();

}  // namespace thunder::tracer
