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
  kOverwritten,    ///< one whose backward needs what the program has written over
  kInference,      ///< none, and none later: made in inference mode
  kInferenceLeaf,  ///< likewise, and it says that it requires grad
};
[[nodiscard]] OutputHistory history_of(const at::Tensor& output);
/// Whether a backward through such a history raises an error.
[[nodiscard]] constexpr bool raises_in_backward(OutputHistory history) {
  return history == OutputHistory::kSpent || history == OutputHistory::kOverwritten;
}
/// Gives an output of a run its history. Behind one that raises in a backward lie `edges`.
void give_history(at::Tensor& output, OutputHistory history, torch::autograd::edge_list edges);

}  // namespace thunder::dispatch
