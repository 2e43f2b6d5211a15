#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace thunder::tracer {

struct TraceState;

/// Whether a tensor lies in memory that is not PyTorch's, such as `torch.from_numpy` makes, and cannot grow.
[[nodiscard]] bool has_foreign_memory(const at::Tensor& real);
/// A tensor that stays as `real` is now, whoever writes to an array over its memory later.
[[nodiscard]] at::Tensor as_constant(const at::Tensor& real);

/// Memory that arrays of NumPy, or the like, share with tensors of a trace: the program may see it without the
/// dispatcher.
class ArrayMemory {
 public:
  struct Array {
    at::Tensor real;    ///< over that memory
    at::Tensor before;  ///< a copy of it
    std::shared_ptr<TraceState> state;
    std::uint32_t writes = 0;  ///< to the tensor of the trace, before
    bool is_returned = false;
  };

  [[nodiscard]] bool is_empty() const { return arrays_.empty(); }
  void add(const at::Tensor& real, const at::Tensor& trace_tensor);
  void note_returned(const at::Tensor& trace_tensor);
  /// Those whose memory a result shows.
  [[nodiscard]] std::vector<at::Tensor> returned() const;
  /// Refuses programs that wrote to such memory: the trace keeps what a tensor held, not the memory.
  void require_unwritten() const;
  /// Refuses results over memory that an input, or another result, has by way of what is no tensor.
  void require_one_owner(const std::function<bool(const TraceState& root)>& is_input) const;

 private:
  /// By place among the arrays: those that share memory with one, by way of others, too. What is read of a tensor that
  /// an array gave may be a copy, over which the next array lies.
  [[nodiscard]] std::vector<bool> connected_to(std::size_t first) const;

  std::vector<Array> arrays_;
};

}  // namespace thunder::tracer
