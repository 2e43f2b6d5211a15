#pragma once

#include <unordered_set>

namespace thunder::tracer {

class TraceTensorImpl;

/// The living tensors of a recorder. Some can outlive it: in the frames of a traceback, in a debugger, in a global.
class LiveTensors {
 public:
  LiveTensors() = default;
  ~LiveTensors();
  LiveTensors(const LiveTensors&) = delete;
  LiveTensors& operator=(const LiveTensors&) = delete;

  void add(TraceTensorImpl& tensor) { tensors_.insert(&tensor); }
  void remove(TraceTensorImpl& tensor) { tensors_.erase(&tensor); }

 private:
  std::unordered_set<TraceTensorImpl*> tensors_;
};

}  // namespace thunder::tracer
