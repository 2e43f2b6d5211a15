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

/// What the level of `tensor` makes of another one, in which `find` gives the tensor that stands for the one below.
[[nodiscard]] at::Tensor with_layer_of(const at::Tensor& tensor,
                                       const std::function<at::Tensor(const at::Tensor& below)>& find);

/// Whether an operation comes down to others before a level sees it.
[[nodiscard]] bool is_decomposed_above_layers(const c10::OperatorHandle& op);

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
