#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/trace.h"
#include "tracer/recorder.h"

namespace thunder::tracer {

/// A part of the program recorded as a trace of its own, to be transformed and then replayed where it was.
///
/// Its inputs are tensors made by `add_input`, which the part is called with, then those it took from around itself:
/// the captures. Those may belong to the trace around it or be real tensors.
class Region final : RecordingHost {
 public:
  /// Inside of the recorder that is active on this thread, if any. `captures_require_grad`: as they do around.
  Region(std::string name, bool captures_require_grad);

  /// A trace tensor of this type for `outside`. It shares no memory with others.
  at::Tensor add_input(const at::Tensor& outside, ir::TensorType type);
  [[nodiscard]] Recorder& recorder() { return *recorder_; }
  /// Whether the part writes to a tensor that it took from around itself.
  [[nodiscard]] bool writes_captures() const;
  /// The tensors that belong in the place of the inputs beyond those that `add_input` made.
  [[nodiscard]] std::vector<at::Tensor> captures() const;
  /// The recorded trace; `outputs` may be captures too. The region is empty afterwards.
  [[nodiscard]] ir::Trace finish(std::span<const at::Tensor> outputs);

 private:
  ir::SourceLocation locate() override {
    return around_ == nullptr ? ir::SourceLocation() : around_->builder.location();
  }
  std::shared_ptr<void> leave_program() override {
    return around_ == nullptr ? nullptr : around_->host.leave_program();
  }
  at::Tensor capture(const at::Tensor& outside) override;
  at::Tensor data_of_input(std::size_t position) override;
  void note_offset_asked(std::size_t position) override;
  void refuse_shared_writes() const;

  Recorder* around_;  ///< null: eager code
  std::shared_ptr<Recorder> recorder_;
  bool captures_require_grad_;
  std::size_t own_inputs_ = 0;       ///< those that `add_input` made, which come first
  std::vector<at::Tensor> outside_;  ///< one for each input
};

/// The data that a program gets in `tensors`, by position: of those that belong to the recorder that is active now, by
/// running what it has recorded.
[[nodiscard]] std::function<at::Tensor(std::size_t)> data_source(std::vector<at::Tensor> tensors);

}  // namespace thunder::tracer
