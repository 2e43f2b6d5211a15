#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/node_pointer.h"
#include "ir/trace.h"

namespace thunder::tracer {

class Recording;
struct TraceState;

/// The memory of a tensor as a backward is to find it.
class ReadMemory {
 public:
  /// `tensor` is no inference tensor: those have no versions.
  explicit ReadMemory(const at::Tensor& tensor);
  /// Whether it has been written to since, in whatever way.
  [[nodiscard]] bool is_written() const;
  [[nodiscard]] std::uint32_t saved_version() const { return saved_version_; }
  [[nodiscard]] std::uint32_t version() const { return version_.current_version(); }

 private:
  c10::VariableVersion version_;
  std::uint32_t saved_version_;
  std::shared_ptr<TraceState> state_;  ///< state of the memory
  std::uint32_t hidden_writes_;        ///< to it, until then
  std::uint32_t shared_writes_;
};

/// A recorded operation in PyTorch's graph. It makes `grad_fn`, `is_leaf` and their kin answer as in eager, and
/// gradients taken inside of the program find their way by it. Its inputs are the operation's results, flattened; its
/// edges lead to the makers of the distinct values among the operation's arguments.
class TraceNode final : public torch::autograd::Node {
 public:
  TraceNode(Recording& recorder, std::string name, ir::BoundSymbol symbol);

  [[nodiscard]] std::string name() const override { return name_; }
  /// Records the operation's backward; see `RecordingHost::derive`.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& cotangents) override;
  void release_variables() override { released_ = true; }

  [[nodiscard]] const ir::BoundSymbol& symbol() const { return symbol_; }
  [[nodiscard]] const std::vector<ir::ValueId>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<ir::ValueId>& results() const { return results_; }
  /// Backward has run through here and was not asked to keep what it saved.
  [[nodiscard]] bool is_released() const { return released_; }
  [[nodiscard]] Recording& recorder() const { return recorder_; }

  /// Watches a tensor for writes: what a backward reads must be what the forward saw.
  void watch(ir::ValueId value, const at::Tensor& tensor);
  /// The operation wrote its result `made` to `target`, whose value was `before`: that one eager keeps a copy of, and
  /// of the result it watches the target. The program has called `writer`.
  void note_written(const c10::OperatorHandle& writer, ir::ValueId before, ir::ValueId made, const at::Tensor& target);
  /// The operator that the program has called where that writes to its argument; the symbol has the one that does not.
  [[nodiscard]] const std::optional<c10::OperatorHandle>& writer() const { return writer_; }
  /// Throws PyTorch's error when the tensor behind the value has been written to since.
  void require_unwritten(ir::ValueId value) const;
  /// Whether any watched tensor has been written to since, in whatever way.
  [[nodiscard]] bool watches_written() const;
  /// Whether a watched tensor has been written to since in a way that version counters do not tell (`.data`).
  [[nodiscard]] bool watches_hidden_write() const;
  /// Whether the tensor behind the value has been written to since, in whatever way.
  [[nodiscard]] bool is_written(ir::ValueId value) const;

  std::shared_ptr<void> derivation;  ///< belongs to whoever derives

 private:
  struct Watched {
    ir::ValueId value;
    ReadMemory memory;
  };

  Recording& recorder_;
  std::string name_;
  ir::BoundSymbol symbol_;
  std::vector<ir::ValueId> inputs_;
  std::vector<ir::ValueId> results_;
  std::vector<Watched> watched_;
  std::optional<c10::OperatorHandle> writer_;
  bool released_ = false;
};

/// A tensor that has a history outside of the trace. Gradients inside do not go past it.
class OutsideNode final : public torch::autograd::Node {
 public:
  OutsideNode(std::string name, ir::ValueId value, std::size_t input)
      : name_(std::move(name)), value_(value), input_(input) {}
  [[nodiscard]] ir::ValueId value() const { return value_; }
  /// The position of the input.
  [[nodiscard]] std::size_t input() const { return input_; }
  [[nodiscard]] std::string name() const override { return name_; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& cotangents) override;

 private:
  std::string name_;
  ir::ValueId value_;  ///< the input, as the program found it
  std::size_t input_;
};

/// Stands for what was there before a write: its gradient is zero. That of `source`, if there is one, is all of
/// the gradient; it is the first edge.
class OverwrittenNode final : public torch::autograd::Node {
 public:
  explicit OverwrittenNode(bool has_source) : has_source_(has_source) {}

  [[nodiscard]] std::string name() const override { return "CopyBackwards"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& cotangents) override;

 private:
  bool has_source_;
};

/// `target` was written over: where the edges lead, gradients are zero, but for that of `source`, which may be nothing.
void overwrite_history(const at::Tensor& target, torch::autograd::edge_list edges,
                       const torch::autograd::Edge& source = {});
/// Makes `target` one without a history, as `detach_` does in eager.
void forget_history(const at::Tensor& target);
/// Edges to those that require grad.
[[nodiscard]] torch::autograd::edge_list edges_to(const std::vector<at::Tensor>& tensors);

[[nodiscard]] TraceNode* as_trace_node(torch::autograd::Node* node);
/// Whether the node belongs to the trace: everything else was left by an autograd function of the program.
[[nodiscard]] bool is_foreign(torch::autograd::Node* node);

}  // namespace thunder::tracer
