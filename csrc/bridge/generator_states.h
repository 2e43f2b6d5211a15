#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace thunder::bridge {

/// Lets `draw` take its numbers from a copy of `generator`, which goes on where the copy stops, and returns the state
/// that it had before. No other thread draws in between. (ATen's kernels lock the generator that they draw from.)
[[nodiscard]] at::Tensor state_before(at::Generator generator, c10::function_ref<void(const at::Generator&)> draw);

/// Whether a CUDA graph is being captured with this generator: each replay of the graph draws anew, from other states.
[[nodiscard]] bool is_captured(const at::Generator& generator);

}  // namespace thunder::bridge
