#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/trace.h"
#include "tracer/trace_node.h"

namespace torch::autograd {
struct FunctionPreHook;
}

namespace thunder::tracer {

class Recording;
class TensorTable;
struct CustomGradient;
struct PythonFunction;

/// Backwards that the program brings along, by an autograd function or a hook: each becomes one of the trace, see
/// custom_gradient.h and python_function.h.
class AdoptedGradients {
 public:
  AdoptedGradients(Recording& recording, TensorTable& tensors) : recording_(recording), tensors_(tensors) {}

  /// Records the backward that an autograd function of the program left on `tensor` and the other results of the same
  /// call, once.
  void adopt(const at::Tensor& tensor);
  /// Gives `results` of an autograd function of the program a history that arises when the trace runs. Undefined: no
  /// tensor. Gives a tensor that stands for a result as that run makes it.
  at::Tensor add_python_function(std::span<const at::Tensor> results, std::span<const at::Tensor> inputs,
                                 std::span<const at::Tensor> saved, std::shared_ptr<const PythonFunction> function);
  /// Records what the hooks on the tensors of a node (`register_hook`) do to gradients, for a backward after the trace.
  /// The program has been recorded. Throws UserError for values that gradients do not come to.
  void record_hooks(torch::autograd::Node& node);
  /// Notes values that gradients do not come to: a checkpoint's, which a backward recomputes instead.
  void note_passed_by(const std::unordered_set<std::uint32_t>& values) {
    passed_by_.insert(values.begin(), values.end());
  }
  /// Notes that gradients of `value`, the result of a checkpoint, go to `handed_on`, which has the checkpoint's
  /// backward.
  void note_handed_on(ir::ValueId value, ir::ValueId handed_on) { handed_on_[index_of(value)] = handed_on; }
  /// Makes `trace_tensor` one that exists by itself when the trace runs, with the history of all that was recorded
  /// before it; false for one that this trace does not make, that was written to, or that gradients do not come to.
  [[nodiscard]] bool set_apart(const at::Tensor& trace_tensor);

  /// Values that `gradient` is the backward of, in the place of `values`.
  std::vector<ir::ValueId> add(const std::vector<ir::ValueId>& values, std::shared_ptr<CustomGradient> gradient);
  /// `value`, whose gradient goes to `owner`: what autograd sees of a write that it does not record.
  ir::ValueId with_gradient_of(ir::ValueId value, ir::ValueId owner);
  /// The value whose gradient goes along an edge that ends the part of the graph that a function of the program left.
  ir::ValueId value_of_edge(const torch::autograd::Edge& edge);
  /// Whether the backward that a node of the program is reads what was written to since it was recorded.
  [[nodiscard]] bool reads_written(const torch::autograd::Node& node) const;
  /// The values whose backward a node of the program is, by result; empty: it has not been recorded.
  [[nodiscard]] std::vector<ir::ValueId> values_of(const torch::autograd::Node& node) const;

 private:
  [[nodiscard]] bool is_passed_by(ir::ValueId value) const { return passed_by_.contains(index_of(value)); }
  /// The living results of the node of the program that made `tensor`, by their numbers.
  [[nodiscard]] std::vector<at::Tensor> with_siblings(const at::Tensor& tensor) const;
  ir::BoundSymbol make_symbol(const std::vector<ir::ValueId>& values, const std::vector<ir::ValueId>& results,
                              std::shared_ptr<CustomGradient> gradient);
  /// Puts a gradient behind the symbol that makes `value`, which the rest of the trace reads as it did. Gives what that
  /// symbol makes now.
  ir::ValueId insert(ir::ValueId hooked, ir::ValueId value, std::shared_ptr<CustomGradient> gradient);
  void record_hook(torch::autograd::FunctionPreHook& hook, const std::vector<ir::ValueId>& hooked,
                   std::vector<ir::ValueId>& values);

  Recording& recording_;
  TensorTable& tensors_;
  std::unordered_map<const void*, std::vector<ir::ValueId>> adopted_;  ///< node of the program -> values by result
  std::unordered_map<const void*, std::vector<ReadMemory>> read_;      ///< node of the program -> what it reads
  std::vector<torch::autograd::Edge> kept_nodes_;                      ///< so that addresses stay unique
  std::unordered_set<std::uint32_t> passed_by_;                        ///< by value
  std::unordered_map<std::uint32_t, ir::ValueId> handed_on_;           ///< by value
};

}  // namespace thunder::tracer
