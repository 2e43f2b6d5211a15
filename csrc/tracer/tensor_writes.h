#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <utility>

namespace thunder::tracer {

class AdoptedGradients;
class AutogradHistory;
class InputMemory;
class Recording;
class TensorTable;
struct TraceState;

/// Turns writes to trace tensors into new values: of the target, of the memory that it is a view of, and, when they are
/// next read, of other views of that memory.
class TensorWrites {
 public:
  TensorWrites(Recording& recording, TensorTable& tensors, InputMemory& memory, AutogradHistory& history,
               AdoptedGradients& gradients)
      : recording_(recording), tensors_(tensors), memory_(memory), history_(history), gradients_(gradients) {}

  /// Gives `target` the elements of `source`, and its geometry where `op` changes that.
  void assign(const c10::OperatorHandle& op, const at::Tensor& target, at::Tensor source, bool may_resize);
  /// `recorded`: autograd sees the write (gradients on, and not through `detach`).
  void write(const at::Tensor& target, const at::Tensor& source, bool recorded);
  /// `source` with the target's shape, dtype and device, in memory of its own.
  [[nodiscard]] at::Tensor copy_like(const at::Tensor& target, const at::Tensor& source);
  /// `value` with the tangent that `before` may have, by adding `before - detach(before)` where that is a number.
  [[nodiscard]] at::Tensor with_tangent_of(const at::Tensor& value, const at::Tensor& before);
  /// Records a view anew after a write to its memory, and gives that; undefined when it was up to date.
  at::Tensor refresh(TraceState& state);
  /// Raises what eager raises for a write to `target` with gradients on.
  void require_writable(const at::Tensor& target, const at::Tensor& source) const;

  /// Refuses a tensor whose history eager refuses to give: a view of some kinds, whose memory was written to since.
  void require_open_history(const at::Tensor& tensor) const;

  /// Whether the program has written to any tensor in place.
  [[nodiscard]] bool has_writes() const { return has_writes_; }
  /// From here on, a write to what exists already is noted: what is recorded may turn out not to belong to the program.
  void begin_trial();
  /// Whether nothing was written to.
  [[nodiscard]] bool end_trial() { return !std::exchange(trial_, Trial()).has_written; }

 private:
  struct Trial {
    std::uint32_t begin = 0;  ///< the first value that is made in it
    bool has_written = false;
  };

  /// Lets `target` be the view `source` of its own memory (`t_`, `squeeze_`). What it was stays, as the parent of
  /// views.
  void turn(const at::Tensor& target, const at::Tensor& source, bool detaches);
  /// Refuses where the results of a program cannot show that `target` was turned.
  void require_turnable(const c10::OperatorHandle& op, const at::Tensor& target) const;
  /// The parent of the view `target` with `source` in the place of what the view shows.
  at::Tensor scatter_into_parent(const at::Tensor& target, const at::Tensor& source);
  void require_detachable(const c10::OperatorHandle& op, const at::Tensor& target) const;
  /// Whether eager has here a tensor that requires grad and that no operation made.
  [[nodiscard]] bool is_leaf_of_program(const at::Tensor& tensor) const;
  /// Whether a tensor is such a leaf, or a view of one.
  [[nodiscard]] bool shows_leaf_of_program(const at::Tensor& tensor) const;

  Recording& recording_;
  TensorTable& tensors_;
  InputMemory& memory_;
  AutogradHistory& history_;
  AdoptedGradients& gradients_;
  bool has_writes_ = false;
  Trial trial_;
};

}  // namespace thunder::tracer
