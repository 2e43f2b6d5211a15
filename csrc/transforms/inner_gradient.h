#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "tracer/recorder.h"
#include "transforms/operator_replay.h"

namespace thunder::tracer {
class TraceNode;
}

namespace thunder::transforms {

/// Gradients that the program takes itself (`backward()`, `torch.autograd.grad`), while it is recorded.
///
/// A backward walks the graph of `tracer::TraceNode`s, and each of them comes here: the operation's derivative is found
/// by replay or rule, its second half is recorded, and when that reads more than the operation's arguments and results,
/// its first half takes the operation's place in the trace.
class InnerGradient {
 public:
  explicit InnerGradient(tracer::Recorder& recorder) : recorder_(recorder) {}
  ~InnerGradient();
  InnerGradient(const InnerGradient&) = delete;
  InnerGradient& operator=(const InnerGradient&) = delete;

  /// See `tracer::RecordingHost::derive`.
  std::vector<at::Tensor> derive(tracer::TraceNode& node, std::vector<at::Tensor> cotangents);
  /// Whether a backward through the node would read what the program has written over since: eager raises then, or,
  /// after a write through `.data`, reads what was written.
  [[nodiscard]] bool reads_written(tracer::TraceNode& node);

 private:
  struct Derivation;
  struct Half;

  /// `derive` where a cotangent belongs to a layer of functorch (it is one example of a batch, say): the derivative is
  /// found for a tensor of its shape, and replayed in that layer.
  std::vector<at::Tensor> derive_in_layers(tracer::TraceNode& node, const std::vector<at::Tensor>& cotangents);
  /// The tensor that a backward reads for a value of a forward half.
  at::Tensor forward_tensor(tracer::TraceNode& node, Derivation& derivation, ir::ValueId id);
  Derivation& derivation_of(tracer::TraceNode& node);
  Half copy_backward(tracer::TraceNode& node, Derivation& derivation, const std::vector<ir::ValueId>& cotangents);
  const OperatorReplay::Backward& backward_for(OperatorReplay& replay, const std::vector<ir::ValueId>& cotangents);
  void place_forward(tracer::TraceNode& node, Derivation& derivation);
  /// Nodes for the values of a forward half, so that they can be differentiated too.
  void connect_forward(tracer::TraceNode& node, Derivation& derivation);
  /// Copies a symbol of a replay; `slot` maps its values.
  template <typename Slot>
  ir::BoundSymbol copy(const ir::BoundSymbol& symbol, const ir::Trace& from, const ir::SourceLocation& location,
                       Slot&& slot);

  using Edges = std::unordered_map<std::uint32_t, torch::autograd::Edge>;
  /// Hangs a recorded symbol between the edges of its arguments and new ones for its results.
  void connect(const ir::BoundSymbol& symbol, Edges& edges);

  tracer::Recorder& recorder_;
  ReplayTable replays_{/*is_inside=*/true};
  std::vector<std::weak_ptr<Derivation>> derivations_;
};

/// Which outputs of a trace autograd would differentiate by its inputs, when `inputs` says so of these. `known`: by
/// value, what is known of it.
[[nodiscard]] std::vector<bool> differentiable_outputs(const ir::Trace& trace, const std::vector<bool>& inputs,
                                                       std::span<const std::optional<bool>> known = {});

/// Which values made by `symbols` autograd would differentiate through, when `requires_grad` says so of what they read.
void mark_differentiable(const ir::Trace& trace, std::span<const ir::BoundSymbol> symbols,
                         std::unordered_map<std::uint32_t, bool>& requires_grad);

}  // namespace thunder::transforms
