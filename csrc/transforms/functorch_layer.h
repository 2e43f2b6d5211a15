#pragma once

#include <ATen/core/Tensor.h>

namespace thunder::transforms {

/// Whether a transform of `torch.func` is at work on this thread.
[[nodiscard]] bool is_any_layer_active();

/// The tensor that `tensor` stands for below all layers. Refuses one that differs between examples of a batch.
[[nodiscard]] at::Tensor below_layers(const at::Tensor& tensor);

/// The tensor below all layers; of a batch, the one that holds all examples.
[[nodiscard]] at::Tensor innermost(const at::Tensor& tensor);

/// Whether `tensor` is one example of a batch, in the innermost layer.
[[nodiscard]] bool is_batched(const at::Tensor& tensor);

/// The tensor behind one that outlived its `grad` or `jvp` level; any other tensor as it is.
[[nodiscard]] at::Tensor unwrap_dead(const at::Tensor& tensor);

}  // namespace thunder::transforms
