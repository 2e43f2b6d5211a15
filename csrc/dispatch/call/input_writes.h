#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tracer/recorder.h"

namespace thunder::dispatch {

/// An input that takes part in autograd by what was written to it.
struct NewHistory {
  at::Tensor tensor;
  torch::autograd::Edge before;  ///< a view's history before the call
};

/// The writes of a trace to its inputs: the conditions under which they may be repeated, and the histories that they
/// give.
class InputWrites {
 public:
  InputWrites() = default;
  /// `reads_buffers`: the program reads the memory of objects that are no tensors, such as arrays of NumPy.
  InputWrites(const tracer::Recorder& recorder, bool reads_buffers);

  /// Whether written inputs share memory with the same others as when the trace was recorded, and may be written to.
  [[nodiscard]] bool match(const std::vector<at::Tensor>& inputs) const;
  /// The inputs that the trace writes to.
  [[nodiscard]] std::vector<at::Tensor> written(const std::vector<at::Tensor>& inputs) const;
  /// The inputs that take part in autograd by what was written to them: one for each of the last outputs.
  [[nodiscard]] std::vector<NewHistory> with_new_history(const std::vector<at::Tensor>& inputs) const;
  /// Whether there are such inputs.
  [[nodiscard]] bool gives_history() const { return !new_history_.empty(); }

 private:
  /// Where an input lies in memory that it shares.
  struct Place {
    std::int32_t memory = -1;  ///< equal for inputs in one storage; -1: alone
    std::int64_t offset = 0;
    std::size_t bytes = 0;
    bool operator==(const Place&) const = default;
  };
  [[nodiscard]] bool share_as_recorded(const std::vector<at::Tensor>& inputs) const;
  [[nodiscard]] bool shares_unseen(const std::vector<at::Tensor>& inputs, std::size_t written) const;

  std::vector<std::size_t> written_;
  std::vector<bool> is_closed_;  ///< to writes with gradients on, as views of a leaf are; by written input
  bool reads_buffers_ = false;
  std::vector<std::size_t> new_history_;
  std::vector<Place> places_;  ///< one for each input; empty when nothing is written
  std::size_t written_memories_ = 0;
  std::size_t inputs_there_ = 0;  ///< in one of these memories
};

/// A number that changes when one of these tensors is written to; nullopt when that cannot be told.
[[nodiscard]] std::optional<std::uint64_t> sum_of_versions(const std::vector<at::Tensor>& tensors);

/// Takes the last elements of `computed`, one for each of `inputs`, and gives their histories to these.
void set_history(const std::vector<NewHistory>& inputs, std::vector<at::Tensor>& computed);

}  // namespace thunder::dispatch
