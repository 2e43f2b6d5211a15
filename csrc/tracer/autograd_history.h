#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

class Recording;
class TensorTable;

/// The history that trace tensors have in PyTorch's graph: the one that eager would give them.
class AutogradHistory {
 public:
  AutogradHistory(Recording& recording, TensorTable& tensors) : recording_(recording), tensors_(tensors) {}

  /// Hangs the results of a symbol in the graph, behind its tensor arguments.
  void attach(const ir::BoundSymbol& symbol, const std::vector<at::Tensor>& arguments,
              const std::vector<at::Tensor>& results, const std::string& name);
  /// Gives `target` the history of what was written to it.
  void adopt(const at::Tensor& target, const at::Tensor& source, bool recorded);
  /// `source`, by which all of `target` is written over: what that was computed from gets a gradient of zeros.
  [[nodiscard]] at::Tensor overwriting(const at::Tensor& target, const at::Tensor& source);
  /// Gives a tensor that the program made a leaf a value that requires grad.
  void mark_leaf(const at::Tensor& tensor);
  /// `value` for a tensor that does not require grad though the value does.
  ir::ValueId without_grad(ir::ValueId value);

 private:
  Recording& recording_;
  TensorTable& tensors_;
  std::unordered_map<std::uint32_t, ir::ValueId> detached_;  ///< by value, the one that does not require grad
};

}  // namespace thunder::tracer
