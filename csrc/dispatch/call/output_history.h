#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace thunder::dispatch {

/// The autograd history that a call gives an output.
enum class OutputHistory : std::uint8_t {
  kComputed,   ///< that of the computation
  kLeaf,       ///< none, but it requires grad
  kSpent,      ///< one that backward has gone through inside
  kInference,  ///< none, and none later: made in inference mode
};
[[nodiscard]] OutputHistory history_of(const at::Tensor& output);
/// Gives an output of a run its history.
void give_history(at::Tensor& output, OutputHistory history);

}  // namespace thunder::dispatch
