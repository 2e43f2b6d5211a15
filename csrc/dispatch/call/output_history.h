#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>

namespace thunder::dispatch {

/// The autograd history that a call gives an output.
enum class OutputHistory : std::uint8_t {
  kComputed,       ///< that of the computation
  kLeaf,           ///< none, but it requires grad
  kSpent,          ///< one that backward has gone through inside
  kInference,      ///< none, and none later: made in inference mode
  kInferenceLeaf,  ///< likewise, and it says that it requires grad
};
[[nodiscard]] OutputHistory history_of(const at::Tensor& output);
/// Gives an output of a run its history. Behind one that is spent lie `edges`.
void give_history(at::Tensor& output, OutputHistory history, torch::autograd::edge_list edges);

}  // namespace thunder::dispatch
