#pragma once

namespace thunder::tracer {

class Recording;

/// Puts back at its end who records on this thread, and which of the tracer's dispatch keys are on.
class RecordingScope {
 public:
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 protected:
  RecordingScope();
  ~RecordingScope();

 private:
  Recording* top_;
  Recording* bottom_;
  bool top_included_;
  bool bottom_included_;
  bool batched_excluded_;
};

/// While alive, what this thread's operations save for their derivatives is not given to hooks of the caller
/// (`torch.autograd.graph.saved_tensors_hooks`, non-reentrant checkpoints): a trace saves nothing.
class WithoutSavingHooks {
 public:
  WithoutSavingHooks();
  ~WithoutSavingHooks();
  WithoutSavingHooks(const WithoutSavingHooks&) = delete;
  WithoutSavingHooks& operator=(const WithoutSavingHooks&) = delete;

 private:
  bool previous_;
};

/// While alive, operations of this thread on any tensor are recorded as the user called them, above autocast and
/// autograd. Inactive inside kernels that the recorder itself runs.
class RecordTop : RecordingScope {
 public:
  explicit RecordTop(Recording& recorder);

 private:
  WithoutSavingHooks saving_;
};

/// While alive, operations of this thread on trace tensors, and factories, are recorded below autograd.
class RecordBottom : RecordingScope {
 public:
  explicit RecordBottom(Recording& recorder);

 private:
  WithoutSavingHooks saving_;
};

/// While alive, operations of this thread run as if nobody recorded.
class SuspendRecording : RecordingScope {
 public:
  SuspendRecording();
};

/// While alive, operations on trace tensors run for their metadata alone: nothing is recorded.
class EvaluateOnly : RecordingScope {
 public:
  EvaluateOnly();
};

}  // namespace thunder::tracer
