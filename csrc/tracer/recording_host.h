#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

class TraceNode;

/// Where in the dispatcher calls are recorded.
enum class Level : std::uint8_t {
  kTop,     ///< as the program called them, above autocast and autograd
  kBottom,  ///< below autograd: what backends execute
};

enum class Recorded : std::uint8_t {
  kProgram,      ///< a program: real tensors that are no inputs become constants
  kPart,         ///< a part of a program (region.h): tensors from around it are captured
  kTransformed,  ///< a part that a transform made of another one
  kOperator,     ///< an operator and its derivative, below autograd
};

[[noreturn]] void refuse_backward_through_trace();

/// Starts a recorder, and answers what only the surroundings of the recorded code know. Outlives the recording.
class RecordingHost {
 public:
  explicit RecordingHost(Recorded recorded) : recorded_(recorded) {}
  virtual ~RecordingHost() = default;
  RecordingHost(const RecordingHost&) = delete;
  RecordingHost& operator=(const RecordingHost&) = delete;
  [[nodiscard]] Recorded recorded() const { return recorded_; }

  /// The user's line for the symbols recorded next; may be empty. Called once per recorded operation.
  virtual ir::SourceLocation locate() { return {}; }
  /// A scope that is held while a call is recorded: in it Python may be asked for lines, and Python code that runs
  /// (meta kernels) is not taken for the program's. May be null.
  virtual std::shared_ptr<void> leave_program() { return nullptr; }
  /// Whether collectives are recorded: a transform's are, those of a program run in eager.
  [[nodiscard]] virtual bool may_communicate() const { return recorded_ == Recorded::kOperator; }
  /// For `kPart`: the trace tensor for a tensor from around.
  virtual at::Tensor capture(const at::Tensor& outside);
  /// For `kPart` and `kTransformed`: the data that the program in this input gets, as far as it is known while tracing.
  virtual at::Tensor data_of_input(std::size_t /*position*/) { return {}; }
  /// For `kPart`: what is recorded depends on where in its memory this input begins.
  virtual void note_offset_asked(std::size_t /*position*/) {}
  /// Records the backward of one recorded operation for these cotangents (undefined: zero) and gives a gradient for
  /// each distinct value among its arguments. See transforms/inner_gradient.h.
  virtual std::vector<at::Tensor> derive(TraceNode& node, std::vector<at::Tensor> cotangents);

  /// Hosts of code that has no surroundings.
  [[nodiscard]] static RecordingHost& whole_program();
  [[nodiscard]] static RecordingHost& one_operator();

 private:
  Recorded recorded_;
};

}  // namespace thunder::tracer
