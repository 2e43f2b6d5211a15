#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <span>
#include <unordered_set>
#include <vector>

#include "ir/trace.h"

namespace torch::autograd {
struct Node;
}

namespace thunder::tracer {

class TraceTensorImpl;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

/// The living tensors of a recorder. Some can outlive it: in the frames of a traceback, in a debugger, in a global.
class LiveTensors {
 public:
  LiveTensors() = default;
  ~LiveTensors();
  LiveTensors(const LiveTensors&) = delete;
  LiveTensors& operator=(const LiveTensors&) = delete;

  void add(TraceTensorImpl& tensor) { tensors_.insert(&tensor); }
  void remove(TraceTensorImpl& tensor) { tensors_.erase(&tensor); }
  /// Those that are results of a node in PyTorch's graph.
  [[nodiscard]] std::vector<at::Tensor> with_node(const torch::autograd::Node* node) const;
  /// Those that stand for one of these values.
  [[nodiscard]] std::vector<at::Tensor> with_values(std::span<const ir::ValueId> values) const;
  /// Adds those that somebody keeps.
  void add_kept(std::vector<WeakTensor>& tensors) const;

 private:
  std::unordered_set<TraceTensorImpl*> tensors_;
};

}  // namespace thunder::tracer
