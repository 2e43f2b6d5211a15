#include "transforms/functorch_layer.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>

#include "base/error.h"
#include "tracer/layers_at_sizes.h"

namespace thunder::transforms {
namespace functorch = at::functorch;

bool is_any_layer_active() { return !functorch::getDynamicLayerStack().empty(); }

at::Tensor below_layers(const at::Tensor& tensor) {
  if (functorch::isBatchedTensor(tensor)) {
    throw UserError(ErrorKind::kRuntime,
                    "vmap: expected a function that does not read the data of tensors, got one that does, and differs "
                    "between examples; use torch.where in the place of a branch");
  }
  const auto* wrapper = functorch::maybeGetTensorWrapper(tensor);
  return wrapper == nullptr ? tensor : below_layers(wrapper->value());
}

at::Tensor innermost(const at::Tensor& tensor) {
  return tracer::is_layered(tensor) ? innermost(tracer::below_layer(tensor)) : tensor;
}

bool is_batched(const at::Tensor& tensor) { return functorch::isBatchedTensor(tensor); }

at::Tensor unwrap_dead(const at::Tensor& tensor) { return functorch::unwrapIfDead(tensor); }

}  // namespace thunder::transforms
