#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

#include "ir/trace.h"
#include "tracer/live_tensors.h"
#include "tracer/recording_host.h"
#include "tracer/trace_builder.h"

namespace thunder::tracer {

/// A recorder as its members and helpers know it. `Recorder` is the only implementation.
class Recording {
 public:
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  RecordingHost& host;
  TraceBuilder builder;
  LiveTensors live;  ///< the trace tensors of this recorder

  [[nodiscard]] Level level() const { return host.recorded() == Recorded::kOperator ? Level::kBottom : Level::kTop; }
  /// Whether what is recorded may be pushed forward: every write must have a tangent then.
  [[nodiscard]] bool may_have_tangents() const { return host.recorded() == Recorded::kPart; }
  [[nodiscard]] ir::Trace& trace() { return builder.trace(); }
  [[nodiscard]] const ir::Trace& trace() const { return builder.trace(); }

  /// The trace tensor to use for any tensor: itself, an input, or a constant.
  virtual at::Tensor trace_tensor_of(const at::Tensor& tensor) = 0;
  /// The value that a trace tensor of this recorder stands for now. May record views anew after a write.
  virtual ir::ValueId value_of(const at::Tensor& trace_tensor) = 0;
  /// A number of this trace as a constant, which the program looks at.
  virtual at::Tensor constant_of(ir::ValueId number) = 0;
  /// Records a call of an operator that does not write, on trace tensors.
  virtual void call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level) = 0;
  /// Records a call of the tracer's own; arguments that are left out have their defaults (call_builder.h).
  virtual std::vector<c10::IValue> call_by_name(const char* name, const char* overload,
                                                std::vector<c10::IValue> arguments) = 0;

 protected:
  Recording(ir::Trace trace, RecordingHost& starter) : host(starter), builder(std::move(trace), starter) {}
  ~Recording() = default;
};

}  // namespace thunder::tracer
