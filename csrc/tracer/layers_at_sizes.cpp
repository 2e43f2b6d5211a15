#include "tracer/layers_at_sizes.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "operators/facts.h"
#include "tracer/operators.h"
#include "tracer/size_node.h"

namespace thunder::tracer {

namespace functorch = at::functorch;
using Layers = std::vector<functorch::DynamicLayer>;

bool is_layered(const at::Tensor& tensor) {
  return tensor.defined() &&
         (functorch::isBatchedTensor(tensor) || functorch::maybeGetTensorWrapper(tensor) != nullptr);
}

at::Tensor below_layer(const at::Tensor& tensor) {
  if (const auto* batched = functorch::maybeGetBatchedImpl(tensor)) return batched->value();
  return functorch::maybeGetTensorWrapper(tensor)->value();
}

at::Tensor with_layer_of(const at::Tensor& tensor, const std::function<at::Tensor(const at::Tensor& below)>& find) {
  const at::Tensor below = find(below_layer(tensor));
  if (const auto* batched = functorch::maybeGetBatchedImpl(tensor)) {
    return functorch::makeBatched(below, batched->bdim(), batched->level());
  }
  const functorch::TensorWrapper* wrapper = functorch::maybeGetTensorWrapper(tensor);
  if (!wrapper->is_alive()) return below;
  if (tensor._fw_grad(/*level=*/0).defined()) {
    throw UserError(ErrorKind::kNotImplemented, "a tangent of the program is not known at other sizes");
  }
  at::Tensor made = functorch::makeTensorWrapper(below, *wrapper->level(), wrapper->is_immutable());
  if (tensor.requires_grad()) made.set_requires_grad(true);
  return made;
}

bool is_decomposed_above_layers(const c10::OperatorHandle& op) {
  const Layers& layers = functorch::getDynamicLayerStack();
  if (layers.empty() || layers.back().key() == functorch::TransformType::Vmap) return false;
  const bool gives_tangent = operators::has_fact(*operator_for(op), operators::Fact::kWrapsTensors);
  return is_composite(op) && !gives_tangent;
}

bool can_follow_layers() {
  bool has_grad = false;
  for (const functorch::DynamicLayer& layer : functorch::getDynamicLayerStack()) {
    if (layer.key() == functorch::TransformType::Vmap && has_grad) return false;
    has_grad = has_grad || layer.key() == functorch::TransformType::Grad;
  }
  return true;
}

bool are_numbers_saved() {
  return std::ranges::any_of(functorch::getDynamicLayerStack(), [](const functorch::DynamicLayer& layer) {
    return layer.key() == functorch::TransformType::Grad;
  });
}

struct LayersAtSizes::Saved {
  Layers layers;
};

LayersAtSizes::LayersAtSizes(ir::SymbolValues symbols) {
  const Layers& layers = functorch::getDynamicLayerStack();
  const auto node_of = [](const functorch::DynamicLayer& layer) {
    return layer.key() == functorch::TransformType::Vmap ? size_node_of(layer.batchSize()) : nullptr;
  };
  if (std::ranges::none_of(layers, node_of)) return;
  Layers here;
  for (const functorch::DynamicLayer& layer : layers) {
    const SizeNode* size = node_of(layer);
    if (size == nullptr) {
      here.push_back(layer);
    } else {
      here.emplace_back(functorch::TransformType::Vmap, layer.layerId(),
                        c10::SymInt(ir::evaluate(size->dim(), symbols)), layer.randomness());
    }
  }
  saved_ = std::make_unique<Saved>(layers);
  functorch::setDynamicLayerStack(here);
}

LayersAtSizes::~LayersAtSizes() {
  if (saved_ != nullptr) functorch::setDynamicLayerStack(saved_->layers);
}

}  // namespace thunder::tracer
