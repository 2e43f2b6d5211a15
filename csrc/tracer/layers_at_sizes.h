#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <memory>

#include "ir/size.h"

namespace thunder::tracer {

// Levels of `torch.func` around operations that are called again at other sizes. What a level makes of a tensor has the
// sizes that its function sees, as numbers: of `vmap`, those of one example. Nobody is told who reads them, so that
// these have to be the same at all sizes.

/// Whether it is a tensor that a level has made of another one.
[[nodiscard]] bool is_layered(const at::Tensor& tensor);

/// The tensor that a level has made it of.
[[nodiscard]] at::Tensor below_layer(const at::Tensor& tensor);

/// Another tensor of the level of `tensor`: `find` gives the one that stands for what is below it.
[[nodiscard]] at::Tensor with_layer_of(const at::Tensor& tensor,
                                       const std::function<at::Tensor(const at::Tensor& below)>& find);

/// Whether the operations that one comes down to leave something of their own behind: a level of `grad` saves what they
/// give. To `vmap` they are one.
[[nodiscard]] bool is_decomposed_above_layers(const c10::OperatorHandle& op);

/// Whether operations in the levels that are active now can be called again at other sizes: a level of `grad` below one
/// of `vmap` saves sizes of batches, as numbers.
[[nodiscard]] bool can_follow_layers();

/// Whether a level of `grad` is active, which saves the numbers among the arguments of operations.
[[nodiscard]] bool are_numbers_saved();

/// While alive, batches of `vmap` have the sizes that they have with these values of the symbols.
class LayersAtSizes {
 public:
  explicit LayersAtSizes(ir::SymbolValues symbols);
  ~LayersAtSizes();
  LayersAtSizes(const LayersAtSizes&) = delete;
  LayersAtSizes& operator=(const LayersAtSizes&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;  ///< null: there was nothing to change
};

}  // namespace thunder::tracer
